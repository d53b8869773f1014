// Looks for a new version of the page that is shown; draws it behind the old one, then lets it take its place.
"use strict";
(() => {
  const LOOK_MS = 1000, DRAW_MS = 15000, HOME = "/report.html";
  const at = (id) => document.getElementById(id);
  let frame = null, shown = "", coming = false;

  const make = (path) => {
    const made = document.createElement("iframe");
    made.className = "coming";
    made.title = "report";
    made.src = path;
    at("pages").append(made);
    return made;
  };
  // A report sets data-ready when its charts are drawn.
  const drawn = (made) => new Promise((done) => {
    const since = Date.now();
    const look = () => {
      const page = made.contentDocument;
      const ready = page && page.readyState === "complete" && page.URL !== "about:blank"
        && (page.documentElement.dataset.ready || !page.getElementById("charts"));
      if (ready || Date.now() - since > DRAW_MS) done(); else setTimeout(look, 50);
    };
    look();
  });
  // What the reader has opened, chosen and scrolled to stays.
  const keep = (old, made) => {
    const before = old.contentDocument, after = made.contentDocument;
    if (!before || !after) return;
    const open = [...before.querySelectorAll("details")].map((one) => one.open);
    after.querySelectorAll("details").forEach((one, i) => { one.open = Boolean(open[i]); });
    before.querySelectorAll("select").forEach((one) => {
      const same = one.id && after.getElementById(one.id);
      if (same && same.value !== one.value) { same.value = one.value; same.dispatchEvent(new Event("change")); }
    });
    before.querySelectorAll("input:checked").forEach((one) => {
      const same = one.id && after.getElementById(one.id);
      if (same && !same.checked) { same.checked = true; same.dispatchEvent(new Event("change", { bubbles: true })); }
    });
    made.contentWindow.scrollTo(old.contentWindow.scrollX, old.contentWindow.scrollY);
  };
  const show = async (path, version) => {
    coming = true;
    const made = make(path);
    await drawn(made);
    const same = frame && frame.contentWindow.location.pathname === made.contentWindow.location.pathname;
    if (same) keep(frame, made);
    at("waits").hidden = true;
    made.className = "";
    if (frame) frame.remove();
    frame = made;
    shown = `${frame.contentWindow.location.pathname} ${version}`;
    coming = false;
  };
  const say = (state) => {
    at("title").textContent = state.title;
    document.title = `${state.title}: emu watch`;
    at("says").textContent = state.says;
    at("note").textContent = state.note;
    const share = at("share");
    share.hidden = state.share === null || state.ended;
    if (state.share !== null) share.value = state.share;
  };
  const look = async () => {
    if (!coming) {
      const path = frame ? frame.contentWindow.location.pathname : HOME;
      at("home").hidden = path === HOME;
      try {
        const answer = await fetch(`/state?page=${encodeURIComponent(path)}`, { cache: "no-store" });
        if (answer.ok) {
          const state = await answer.json();
          say(state);
          if (!frame) at("waits").textContent = state.version ? "Drawing the report ..." : state.waits;
          if (state.version && shown !== `${path} ${state.version}`) await show(path, state.version);
        } else {
          at("says").textContent = await answer.text();
        }
      } catch {
        at("says").textContent = "emu watch has ended; what is shown stays as it is.";
        if (!frame) at("waits").textContent = "Start it again to see the report.";
      }
    }
    setTimeout(look, LOOK_MS);
  };
  at("home").addEventListener("click", (event) => {
    event.preventDefault();
    if (frame) frame.contentWindow.location.pathname = HOME;
  });
  look();
})();
