// Draws the charts and lets the reader choose a tensor. Runs last; needs nothing that is not on the page.
"use strict";
(() => {
  const read = (id) => {
    const block = document.getElementById(id);
    return block ? JSON.parse(block.textContent) : null;
  };
  const options = { actions: false, renderer: "svg", ast: false, tooltip: { theme: "custom" } };
  // Vega measures what lies around a drawing before it changes the drawing's width: it fits once the width stays.
  const fit = async (view, tries = 4) => {
    const before = view.width();
    await view.resize().runAsync();
    return tries && view.width() !== before ? fit(view, tries - 1) : view;
  };
  // What is drawn is named by the placeholder's label and described by how to read it; Vega overwrites the label.
  const draw = (id, spec) => {
    const place = document.getElementById(id);
    const [name, caption] = [place.getAttribute("aria-label"), captionOf(place)];
    if (caption) {
      caption.id ||= `${id}-reading`;
      place.setAttribute("aria-describedby", caption.id);
    }
    return vegaEmbed(place, { ...spec, description: name }, options).then(({ view }) => fit(view));
  };
  const captionOf = (place) => place.closest("figure")?.querySelector("figcaption")
    || place.closest("section")?.querySelector("figcaption");

  const make = (name, text, attributes = {}) => {
    const node = document.createElement(name);
    node.textContent = text;
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    return node;
  };

  // A share in millionths, as the page writes shares elsewhere.
  const percent = (parts) => {
    const hundred = parts / 1e4;
    if (parts === 0) return "0%";
    if (hundred >= 99 && hundred < 100) return `${Number(Math.min(hundred, 99.99).toFixed(2))}%`;
    if (hundred >= 10) return `${hundred.toFixed(0)}%`;
    return hundred < 0.001 ? "<0.001%" : `${Number(hundred.toPrecision(2))}%`;
  };
  const superscript = (n) => String(n).replace(/[-0-9]/g, (c) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)]);
  const decimal = (exponent) => {
    const value = Math.pow(2, exponent);
    return value < 1e-3 || value >= 1e6 ? value.toExponential(1).replace("+", "") : String(Number(value.toPrecision(3)));
  };
  const span = (e) => `2${superscript(e)} to 2${superscript(e + 1)} (${decimal(e)} to ${decimal(e + 1)})`;
  const interval = (steps, i) => `${(i ? steps[i - 1] : 0) + 1} to ${steps[i]}`;

  function cellsOf(panel) {
    const cells = [];
    const add = (bottom, height, range, parts) => parts.forEach((share, i) => {
      if (!share) return;
      cells.push({
        x0: i ? panel.steps[i - 1] : 0, x1: panel.steps[i], y0: bottom, y1: bottom + height, share: share / 1e6,
        steps: interval(panel.steps, i), range, text: percent(share),
      });
    });
    panel.rows.forEach(([exponent, parts]) => add(exponent, 1, span(exponent), parts));
    panel.special.forEach(([bottom, name, parts]) => add(bottom, panel.thick, name, parts));
    return cells;
  }

  function tableOf(panel) {
    const table = make("table", "");
    table.append(make("caption", `Share of the results of ${panel.layer} ${panel.role} by magnitude`));
    const last = panel.steps.length - 1;
    const chosen = [...new Set([0, Math.floor(last / 2), last])];
    const head = make("tr", "");
    head.append(make("th", "magnitude", { scope: "col" }));
    chosen.forEach((i) => head.append(make("th", `steps ${interval(panel.steps, i)}`, { scope: "col", class: "number" })));
    const body = make("tbody", "");
    const row = (name, parts) => {
      const line = make("tr", "");
      line.append(make("th", name, { scope: "row" }));
      chosen.forEach((i) => line.append(make("td", percent(parts[i]), { class: "number" })));
      body.append(line);
    };
    [...panel.rows].reverse().forEach(([exponent, parts]) => row(span(exponent), parts));
    panel.special.forEach(([, name, parts]) => row(name, parts));
    const header = make("thead", "");
    header.append(head);
    table.append(header, body);
    return table;
  }

  function explore(view, data) {
    const layer = document.getElementById("bits-layer");
    const role = document.getElementById("bits-role");
    const find = (l, r) => data.panels.find((p) => p.layer === l && p.role === r);
    const roles = [...role.options].map((o) => o.value);

    function offer(wanted) {
      const there = roles.filter((r) => find(layer.value, r));
      role.replaceChildren(...there.map((r) => make("option", r)));
      role.value = there.includes(wanted) ? wanted : there[0];
    }
    function show() {
      const panel = find(layer.value, role.value);
      view.signal("lo", panel.domain[0]).signal("hi", panel.domain[1]);
      view.signal("ticks", panel.ticks).signal("names", panel.names);
      view.data("cells", cellsOf(panel)).data("lines", panel.lines).data("outside", panel.outside);
      view.data("trail", panel.trail);
      document.getElementById("bits-chart").setAttribute("aria-label", `Leading bits of ${panel.layer} ${panel.role} over time. ${panel.summary}`);
      document.querySelectorAll("#bits-lines li").forEach((item) => {
        item.hidden = !panel.lines.some((line) => line.of === item.dataset.of);
      });
      document.getElementById("bits-summary").textContent = panel.summary;
      document.getElementById("bits-facts").replaceChildren(...panel.facts.map(([term, text]) => {
        const pair = make("div", "");
        pair.append(make("dt", term), make("dd", text));
        return pair;
      }));
      document.getElementById("bits-table").replaceChildren(tableOf(panel));
      return fit(view);
    }
    layer.addEventListener("change", () => { offer(role.value); show(); });
    role.addEventListener("change", show);
    layer.value = data.first[0];
    offer(data.first[1]);
    return show();
  }

  // A menu that names a chart sets one of its signals; an option may have a height for it.
  function offerSignals(views) {
    document.querySelectorAll("select[data-signal]").forEach((menu) => {
      const set = () => {
        const view = views[menu.dataset.chart], height = menu.selectedOptions[0].dataset.height;
        if (height) {
          document.getElementById(menu.dataset.chart).style.minHeight = "0";
          view.height(Number(height));
        }
        return fit(view.signal(menu.dataset.signal, menu.value));
      };
      menu.addEventListener("change", set);
      if (menu.selectedIndex > 0) set();
    });
  }

  // The network is drawn already; its menu gives the layers another column's colours and texts.
  function paint(menu, data) {
    const show = () => {
      const column = data.columns[menu.value];
      document.querySelectorAll("#network [data-layer]").forEach((box) => {
        const [colour, ink, text] = column[box.dataset.layer];
        box.style.setProperty("--box", colour);
        box.style.setProperty("--ink-of-box", ink);
        box.querySelector(".value").textContent = text;
      });
      document.querySelectorAll("#network [data-legend]").forEach((legend) => {
        legend.hidden = legend.dataset.legend !== data.legends[menu.value];
      });
    };
    menu.addEventListener("change", show);
    show();
  }

  const views = {};
  const drawn = Object.entries(read("charts") || {}).map(([id, spec]) => draw(id, spec).then((view) => {
    views[id] = view;
    if (id === "bits-chart") return explore(view, read("leading-bits-data"));
    return view;
  }));
  // Vega follows the width of the window by itself, but measures once; this comes after it.
  addEventListener("resize", () => setTimeout(() => drawn.forEach((view) => view.then((shown) => fit(shown))), 100));
  const menu = document.getElementById("network-column");
  if (menu) paint(menu, read("network-data"));
  // "ready" tells tests and printers that every chart is drawn.
  Promise.all(drawn).then(() => offerSignals(views)).then(() => { document.documentElement.dataset.ready = "true"; });
})();
