#!/bin/sh
# Checks what `make setup` cannot install itself: Python 3.11 or later with venv, and Java 17 or later for Spark.
# Usage: check_prerequisites.sh PYTHON

python=${1:-python3}
missing=0

if ! command -v "$python" >/dev/null 2>&1; then
    found="there is no \`$python\`"
elif ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    found="\`$python\` is $("$python" --version 2>&1 | head -n 1)"
elif ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    found="\`$python\` has no venv module"
else
    found=
fi
if [ -n "$found" ]; then
    missing=1
    cat >&2 <<EOF
Python 3.11 or later with venv is needed, but $found. To install it:
  Debian, Ubuntu:  sudo apt install python3 python3-venv
  Fedora:          sudo dnf install python3
  macOS:           brew install python@3.13
If another name runs it, say which: make setup PYTHON=python3.13

EOF
fi

if [ -n "$JAVA_HOME" ]; then
    java=$JAVA_HOME/bin/java
    place="JAVA_HOME ($JAVA_HOME)"
else
    java=java
    place="PATH"
fi
version=$("$java" -version 2>&1 | sed -n 's/.* version "\([^"]*\)".*/\1/p' | head -n 1)
major=${version%%[!0-9]*}
found_java=${version:+only Java $version}
if [ "${major:-0}" -lt 17 ]; then
    missing=1
    cat >&2 <<EOF
Java 17 or later is needed by Spark, but ${found_java:-none} was found by $place. To install it:
  Debian, Ubuntu:  sudo apt install openjdk-17-jre-headless
  Fedora:          sudo dnf install java-21-openjdk-headless
  macOS:           brew install openjdk@17, then export JAVA_HOME="\$(brew --prefix openjdk@17)"

EOF
fi

exit $missing
