#!/usr/bin/env bash
# Lays out what the site is built from: the pages where they stand in the repository, so that all links are right.
set -euo pipefail
cd "$(dirname "$0")/.."
source=.cache/docs/source
rm -rf "$source"
mkdir -p "$source/tests/simulation"
# Copies, because a build of the sources takes a directory once, also if it finds it through a link.
for path in README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md LICENSE docs conf schemas examples tests/simulation/README.md; do
    cp -r "$path" "$source/$path"
done
