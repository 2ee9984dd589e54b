"use strict";
(() => {
  const { owners, phases, columns } = JSON.parse(document.getElementById("data").textContent);
  const [plot, cursor, tip] = ["plot", "cursor", "tip"].map((id) => document.getElementById(id));
  let shown = -1;

  // As the page prints it: binary units, three significant digits.
  const bytes = (amount) => {
    const names = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let name = 0;
    while (amount >= 1023.5 && name + 1 < names.length) {
      amount /= 1024;
      name += 1;
    }
    const places = name === 0 || amount >= 99.95 ? 0 : amount >= 9.995 ? 1 : 2;
    return `${Number(amount.toFixed(places))} ${names[name]}`;
  };
  const count = (number) => number.toLocaleString("en");

  const line = (kind, name, value, owner) => {
    const row = document.createElement("div");
    row.className = kind;
    const left = document.createElement("span");
    if (owner) {
      const swatch = document.createElement("i");
      swatch.className = `swatch ${owner}`;
      left.append(swatch);
    }
    left.append(name);
    const right = document.createElement("span");
    right.textContent = value;
    row.append(left, right);
    return row;
  };

  const show = (index) => {
    shown = Math.max(0, Math.min(columns.length - 1, index));
    const [start, end, moment, ...amounts] = columns[shown];
    const phase = phases.find(([, from, to]) => from <= moment && moment < to);
    const rows = [line("head", `moment ${count(moment)}`, phase ? phase[0] : "")];
    for (let at = owners.length - 1; at >= 0; at -= 1) {
      rows.push(line("", owners[at], bytes(amounts[at]), owners[at]));
    }
    rows.push(line("head", "all", bytes(amounts.reduce((sum, amount) => sum + amount, 0))));
    if (end - start > 1) {
      rows.push(line("note", `highest of ${count(start)} to ${count(end - 1)}`, ""));
    }
    tip.replaceChildren(...rows);
    const place = (shown + 0.5) / columns.length;
    cursor.style.left = `${place * 100}%`;
    // The tip stands on the side with more room.
    tip.style.left = place < 0.5 ? `calc(${place * 100}% + 12px)` : "auto";
    tip.style.right = place < 0.5 ? "auto" : `calc(${(1 - place) * 100}% + 12px)`;
    cursor.hidden = tip.hidden = false;
  };
  const hide = () => {
    cursor.hidden = tip.hidden = true;
    shown = -1;
  };

  if (columns.length === 0) {
    return;
  }
  const follow = (event) => {
    const box = plot.getBoundingClientRect();
    show(Math.floor(((event.clientX - box.left) / box.width) * columns.length));
  };
  plot.addEventListener("pointermove", follow);
  plot.addEventListener("pointerdown", follow);
  plot.addEventListener("pointerleave", hide);
  plot.addEventListener("blur", hide);
  plot.addEventListener("keydown", (event) => {
    const far = Math.max(1, Math.round(columns.length / 20));
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -far, PageDown: far }[event.key];
    const end = { Home: 0, End: columns.length - 1 }[event.key];
    if (event.key === "Escape") {
      hide();
    } else if (step !== undefined || end !== undefined) {
      show(end !== undefined ? end : shown + step);
      event.preventDefault();
    }
  });
})();
