// Additions to htmx: the state of the stream, and the slider of the time travel.
"use strict";

(() => {
  const shown = document.getElementById("stream");
  const tell = (text, state) => {
    if (shown && shown.textContent !== text) {
      shown.textContent = text;
      shown.dataset.state = state;
    }
  };
  document.addEventListener("htmx:sse:after:connection", () => tell("live", "on"));
  for (const name of ["htmx:sse:error", "htmx:sse:close"]) {
    document.addEventListener(name, () => tell("not live: the console does not answer", "off"));
  }

  const slot = document.getElementById("slot");
  if (slot) {
    const label = document.getElementById("slot-shown");
    const date = document.getElementById("date");
    slot.addEventListener("input", () => {
      delete slot.dataset.unset;
      label.textContent = slot.value;
      date.value = "";
    });
    slot.addEventListener("change", () => slot.form.requestSubmit());
  }
  // Fields without a value are left out of the address. The slider always has a value, so it is left out until moved.
  for (const form of document.querySelectorAll("form[method=get]")) {
    form.addEventListener("submit", () => {
      for (const field of form.querySelectorAll("input")) {
        field.disabled = field.value === "" || "unset" in field.dataset;
      }
    });
  }
  addEventListener("pageshow", () => {
    for (const field of document.querySelectorAll("form[method=get] input:disabled")) field.disabled = false;
  });
})();
