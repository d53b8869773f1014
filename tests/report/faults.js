// Returns what is wrong with the drawn charts of a page, a sentence each. `SLACK` pixels are a rounded coordinate.
(() => {
  const SLACK = 1;
  const WHOLE = ["step", "trial", "nodes", "examples"];
  const faults = [];
  // Placeholders of a report, and drawings that a page holds as they are.
  const charts = document.documentElement.tagName === "svg" ? [document.documentElement]
    : [...document.querySelectorAll(".chart, svg")].filter((node) => !node.parentNode.closest(".chart, .legend"));
  const within = (inner, outer, slack = SLACK) => inner.left >= outer.left - slack && inner.right <= outer.right + slack
    && inner.top >= outer.top - slack && inner.bottom <= outer.bottom + slack;
  const visible = (node) => {
    for (let at = node; at && at.getAttribute; at = at.parentNode) {
      const { opacity, display, visibility } = getComputedStyle(at);
      if (display === "none" || visibility === "hidden" || Number(opacity) === 0) return false;
    }
    const box = node.getBoundingClientRect();
    return box.width > 0 || box.height > 0;
  };
  // Where a clipped element may draw, in pixels of the screen; null where nothing clips it.
  const clip = (svg, node) => {
    const holder = node.closest("[clip-path]");
    if (!holder) return null;
    const shape = svg.querySelector(holder.getAttribute("clip-path").slice(4, -1)).firstElementChild.getBBox();
    const at = holder.getScreenCTM();
    const left = at.a * shape.x + at.e, top = at.d * shape.y + at.f;
    return { left, top, right: left + at.a * shape.width, bottom: top + at.d * shape.height };
  };
  const named = (node) => node.tagName === "text" ? `text "${node.textContent}"`
    : `${(node.parentNode.getAttribute("class") || node.getAttribute("class") || node.tagName)}`;
  const sized = (box) => ["left", "top", "right", "bottom"].map((side) => Math.round(box[side])).join(" ");

  for (const chart of charts) {
    const svg = chart.tagName === "svg" ? chart : chart.querySelector("svg");
    const say = (text) => faults.push(`${chart.id || document.URL.split("/").pop()}: ${text}`);
    if (!svg) { say("not drawn"); continue; }
    const frame = svg.getBoundingClientRect();
    if (svg !== chart && !within(frame, chart.getBoundingClientRect())) say("the drawing is larger than its place");
    const texts = [];
    for (const node of svg.querySelectorAll("text, path, line, rect, image")) {
      if (node.closest("defs, clipPath") || !visible(node)) continue;
      const box = node.getBoundingClientRect(), edge = clip(svg, node);
      const middle = { left: (box.left + box.right) / 2, top: (box.top + box.bottom) / 2 };
      const hidden = edge && !within({ ...middle, right: middle.left, bottom: middle.top }, edge, 0.5);
      if (!edge && !within(box, frame)) say(`${named(node)} leaves the drawing: ${sized(box)} in ${sized(frame)}`);
      if (edge && !hidden && node.closest(".mark-symbol") && !within(box, edge)) say(`${named(node)} is cut`);
      if (node.tagName === "text" && node.textContent.trim()) texts.push({ node, box });
    }
    for (const axis of svg.querySelectorAll(".role-axis-label, .role-legend-label")) {
      const labels = [...axis.querySelectorAll("text")].filter(visible).map((text) => text.textContent);
      if (new Set(labels).size < labels.length) say(`an axis says one thing twice: ${labels.join(", ")}`);
      const title = axis.parentNode.querySelector(".role-axis-title")?.textContent;
      const whole = WHOLE.includes(title) || labels.some((label) => label.includes("^"));
      if (whole && labels.some((label) => /\d[.]\d/.test(label))) say(`not whole: ${title} ${labels.join(", ")}`);
    }
    for (const symbol of svg.querySelectorAll(".role-legend-symbol path")) {
      const { fill, stroke } = getComputedStyle(symbol), { width, height } = symbol.getBBox();
      const empty = (paint) => paint === "none" || paint === "transparent" || paint === "rgba(0, 0, 0, 0)";
      if (empty(stroke) && (empty(fill) || width === 0 || height === 0)) say("a symbol of a legend has no colour");
    }
    const flat = texts.filter(({ node }) => Math.abs(node.getScreenCTM().b) < 0.01);
    flat.forEach(({ node, box }, i) => flat.slice(i + 1).forEach((other) => {
      const over = Math.min(box.right, other.box.right) - Math.max(box.left, other.box.left);
      const under = Math.min(box.bottom, other.box.bottom) - Math.max(box.top, other.box.top);
      const halo = node.textContent === other.node.textContent;
      if (over > 2 && under > 4 && !halo) say(`${named(node)} lies over ${named(other.node)}`);
    }));
  }
  return faults;
})()
