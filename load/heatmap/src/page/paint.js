// The map on its canvas: cells as pixels of a small picture that is stretched, and labels, bounds, marks above them.

const ROOM = { left: 190, right: 160, top: 48, bottom: 26 };
/** Room of the totals: height above the map, width beside it. */
const TOTALS = { height: 22, width: 26 };
const LINES_MAX = 96;

/** Where the map lies on a canvas, and where on it rows and times are. */
function layoutOf(map, width, height) {
  const area = { x: ROOM.left, y: ROOM.top, width: Math.max(width - ROOM.left - ROOM.right, 40), height: Math.max(height - ROOM.top - ROOM.bottom, 40) };
  const edges = edgesOf(map), from = map.times[0] ?? 0, span = Math.max(endOf(map) - from, 1);
  return {
    area,
    x: (at) => area.x + Math.min(Math.max((at - from) / span, 0), 1) * area.width,
    columnX: (column) => area.x + (column / Math.max(map.times.length, 1)) * area.width,
    y: (row) => area.y + (1 - edges[Math.min(row, edges.length - 1)]) * area.height,
    timeAt: (x) => from + Math.min(Math.max((x - area.x) / area.width, 0), 1) * span,
    columnAt: (x) => Math.min(Math.max(Math.floor(((x - area.x) / area.width) * map.times.length), 0), map.times.length - 1),
    rowAt: (y) => {
      const part = 1 - (y - area.y) / area.height;
      let row = 0;
      while (row < map.rows.length - 1 && edges[row + 1] <= part) row++;
      return row;
    },
  };
}

function paintCells(pen, map, layout, ramp, gap, shades, brightness) {
  const columns = map.times.length, lines = Math.max(Math.round(layout.area.height), 1);
  if (!columns || !map.rows.length) return;
  const sheet = document.createElement("canvas");
  sheet.width = columns;
  sheet.height = lines;
  const inks = sheet.getContext("2d"), pixels = inks.createImageData(columns, lines);
  const parse = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  const table = Array.from({ length: RAMP_STEPS }, (_, step) => parse(ramp.slice(step * HEX_PER_COLOUR, (step + 1) * HEX_PER_COLOUR)));
  const gaps = new Set(map.gaps), none = parse(gap);
  map.rows.forEach((_, row) => {
    const top = Math.round(layout.y(row + 1) - layout.area.y), bottom = Math.max(Math.round(layout.y(row) - layout.area.y), top + 1);
    for (let column = 0; column < columns; column++) {
      // Whatever has load at all is seen.
      const least = shades[row][column] > 0 ? 5 : 0;
      const colour = gaps.has(column) ? none : table[Math.max(least, Math.round(Math.sqrt(Math.min(1, shades[row][column] * brightness)) * (RAMP_STEPS - 1)))];
      for (let line = top; line < Math.min(bottom, lines); line++) {
        const at = (line * columns + column) * 4;
        pixels.data[at] = colour[0];
        pixels.data[at + 1] = colour[1];
        pixels.data[at + 2] = colour[2];
        pixels.data[at + 3] = 255;
      }
    }
  });
  inks.putImageData(pixels, 0, 0);
  pen.imageSmoothingEnabled = false;
  pen.drawImage(sheet, layout.area.x, layout.area.y, layout.area.width, layout.area.height);
}

function cut(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let low = 0, high = text.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (pen.measureText(text.slice(0, middle) + "\u2026").width <= width) low = middle; else high = middle - 1;
  }
  return text.slice(0, low) + "\u2026";
}

/** A key that does not fit is cut behind a level, if that leaves half of the width. */
function cutKey(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  const widthAt = (end) => pen.measureText(text.slice(0, end) + "\u2026").width;
  const end = levelEnds(text).findLast((end) => widthAt(end) <= width && widthAt(end) * 2 >= width);
  return end === undefined ? cut(pen, text, width) : text.slice(0, end) + "\u2026";
}

function paintAxes(pen, map, layout, inks) {
  const { area } = layout, from = map.times[0] ?? 0, span = endOf(map) - from;
  pen.fillStyle = inks.faint;
  pen.textAlign = "center";
  for (const at of ticksOf(from, endOf(map), Math.max(Math.floor(area.width / 110), 1))) {
    pen.fillRect(layout.x(at), area.y + area.height, 1, 4);
    pen.fillText(clock(at, span), layout.x(at), area.y + area.height + 17);
  }
  pen.textAlign = "right";
  if (map.isStacked) return paintNames(pen, map, layout, inks);
  const starts = map.bounds.filter((bound) => bound.to === map.times.length).map((bound) => bound.row);
  const between = [];
  for (let part = 1; part < Math.floor(area.height / 44); part++) between.push(layout.rowAt(area.y + area.height - part * 44));
  const placed = [];
  for (const row of [0, ...starts, ...between]) {
    const y = layout.y(row), label = map.rows[row]?.start;
    if (label === undefined || placed.some(([other, text]) => Math.abs(other - y) < 15 || (text === label && Math.abs(other - y) < 60))) continue;
    placed.push([y, label]);
  }
  // What all keys begin with is said once, above them.
  const prefix = commonPrefix(placed.map(([, label]) => label).filter((label) => label !== "(lowest)"));
  pen.fillStyle = inks.faint;
  if (prefix) pen.fillText(cut(pen, prefix + "\u2026", ROOM.left - 22), area.x - 10, area.y - 9);
  // From above, so that a label can leave out what it shares with the one before.
  placed.sort(([one], [other]) => one - other);
  for (const [at, [y, label]] of placed.entries()) {
    const outline = outlined(placed[at - 1]?.[1], label), isWhole = outline === label;
    const text = isWhole && prefix && label.startsWith(prefix) ? "\u2026" + label.slice(prefix.length) : outline;
    pen.fillStyle = inks.faint;
    pen.fillRect(area.x - 5, Math.round(y), 4, 1);
    pen.fillStyle = inks.ink;
    pen.fillText(cutKey(pen, text, ROOM.left - 22), area.x - 10, y + 4);
  }
}

/** The names of stacked pictures, in the middle of each, and lines between them. */
function paintNames(pen, map, layout, inks) {
  const { area } = layout;
  for (const [start, end] of partsOf(map)) {
    const low = layout.y(start), high = layout.y(end), name = map.rows[start].name ?? map.rows[start].table;
    pen.fillStyle = inks.ink;
    if (low - high >= 12) pen.fillText(cut(pen, name, ROOM.left - 22), area.x - 10, (low + high) / 2 + 4);
    pen.fillStyle = inks.faint;
    if (start > 0) pen.fillRect(area.x - 60, Math.round(low), area.width + 60, 1);
  }
}

/** Totals along both axes: of each time above the map, of each range of keys beside it. */
function paintTotals(pen, map, layout, inks) {
  const { area } = layout, totals = totalsOf(map);
  const most = Math.max(1e-9, ...totals.columns), densest = Math.max(1e-9, ...totals.rows.map((rate, row) => rate / areaOf(map, row)));
  pen.fillStyle = inks.faint;
  // Different metrics have no sum.
  if (!map.isMixed) {
    totals.columns.forEach((rate, column) => {
      const height = (rate / most) * TOTALS.height, left = layout.columnX(column);
      pen.fillRect(left, area.y - 3 - height, Math.max(layout.columnX(column + 1) - left, 1), height);
    });
    pen.textAlign = "left";
    pen.fillText(`total, at most ${rateText(map.metric, most)}`, area.x, area.y - 7 - TOTALS.height);
  }
  partsOf(map).forEach(([first, end]) => {
    const measure = map.isMixed ? Math.max(1e-9, ...totals.rows.slice(first, end).map((rate, at) => rate / areaOf(map, first + at))) : densest;
    for (let row = first; row < end; row++) {
      const top = layout.y(row + 1), width = (totals.rows[row] / areaOf(map, row) / measure) * TOTALS.width;
      pen.fillRect(area.x + area.width + 3, top, width, Math.max(layout.y(row) - top, 1));
    }
  });
}

/** [first row, row after the last, rate] of each partition: the mean of the last known seconds. */
function lastOf(map) {
  const gaps = new Set(map.gaps), columns = map.times.map((_, column) => column).filter((column) => !gaps.has(column)).slice(-Math.max(1, Math.floor(5 / map.step)));
  if (!columns.length) return [];
  return partitionsIn(map, columns[columns.length - 1]).map(([start, end]) => {
    let sum = 0;
    for (let row = start; row < end; row++) for (const column of columns) sum += map.cells[row][column];
    return [start, end, sum / columns.length];
  });
}

function paintLast(pen, map, layout, ramp, inks, mode, brightness) {
  const { area } = layout, last = lastOf(map), left = area.x + area.width + TOTALS.width + 10, room = ROOM.right - TOTALS.width - 18;
  const brightest = (metric) => Math.max(1e-9, ...last.filter(([row]) => metricOf(map, row) === metric).map(([, , rate]) => rate));
  pen.textAlign = "left";
  pen.fillStyle = inks.faint;
  pen.fillText("at the right edge", left, area.y - 7);
  let labelled = Infinity;
  for (const [start, end, rate] of last) {
    const capacity = mode === "absolute" ? capacityOf(map, start) : null, metric = metricOf(map, start);
    const low = layout.y(start), high = layout.y(end), share = Math.min(1, rate / (capacity ?? brightest(metric)));
    const middle = (low + high) / 2, tall = low - high >= 30;
    pen.fillStyle = colourOf(ramp, share * brightness);
    pen.fillRect(left, tall ? middle + 3 : high + 1, Math.max(share * room, 1), tall ? 8 : Math.max(low - high - 2, 1));
    const baseline = tall ? middle - 1 : middle + 4;
    if (!tall && low - high < 14 && (labelled - baseline < 15 || share < 0.02)) continue;
    labelled = baseline;
    const row = map.rows[start], text = `${row.partition === null ? "" : "p" + row.partition + " "}${capacity ? percent(rate / capacity) : rateText(metric, rate)}`;
    if (!tall) {
      pen.fillStyle = inks.ground;
      pen.fillRect(left + 2, baseline - 11, pen.measureText(text).width + 6, 14);
    }
    pen.fillStyle = inks.ink;
    pen.fillText(text, left + (tall ? 0 : 5), baseline);
  }
}

function paintNotes(pen, map, layout, inks) {
  const { area } = layout;
  if (map.bounds.length <= LINES_MAX) {
    pen.fillStyle = inks.faint + "b0";
    for (const bound of map.bounds) if (bound.row > 0) pen.fillRect(layout.columnX(bound.from), Math.round(layout.y(bound.row)), layout.columnX(bound.to) - layout.columnX(bound.from), 1);
  }
  pen.strokeStyle = inks.line;
  pen.strokeRect(area.x - 0.5, area.y - 0.5, area.width + 1, area.height + 1);
  pen.textAlign = "left";
  const markPoint = (mark) => ({ x: Math.min(Math.max(layout.x(mark.at), area.x + 6), area.x + area.width - 6), y: Math.min(Math.max(layout.y(mark.row), area.y + 6), area.y + area.height - 6) });
  const placed = map.marks.map(markPoint).map(({ x, y }) => ({ x: x - 7, y: y - 8, width: 14 }));
  for (const verdict of map.verdicts) {
    const left = layout.x(verdict.since), right = layout.x(verdict.until ?? Infinity), low = layout.y(verdict.from_row), high = layout.y(verdict.to_row);
    pen.strokeStyle = inks.alarm;
    pen.strokeRect(left + 0.5, high + 0.5, Math.max(right - left - 1, 2), Math.max(low - high - 1, 2));
    pen.font = "bold 12px ui-monospace, 'DejaVu Sans Mono', monospace";
    const width = pen.measureText(verdict.class).width + 10, x = Math.max(area.x + 2, Math.min(left + 4, area.x + area.width - width - 2));
    let y = (low + high) / 2 - 8;
    for (let step = 0; step < 60; step++) {
      const tried = Math.min(Math.max((low + high) / 2 - 8 + (step % 2 ? -1 : 1) * Math.ceil(step / 2) * 19, area.y + 2), area.y + area.height - 19);
      if (placed.every((other) => x > other.x + other.width || x + width < other.x || Math.abs(other.y - tried) >= 19)) { y = tried; break; }
    }
    placed.push({ x, y, width });
    pen.fillStyle = inks.alarm;
    pen.fillRect(x, y, width, 17);
    pen.fillStyle = inks.alarmInk;
    pen.fillText(verdict.class, x + 5, y + 13);
    pen.font = "12px system-ui, 'DejaVu Sans', sans-serif";
  }
  pen.textAlign = "center";
  pen.lineWidth = 3;
  for (const mark of map.marks) {
    const { x, y } = markPoint(mark);
    pen.strokeStyle = inks.ground;
    pen.strokeText(SIGNS[mark.kind] ?? "?", x, y + 4);
    pen.fillStyle = inks.mark;
    pen.fillText(SIGNS[mark.kind] ?? "?", x, y + 4);
  }
  pen.lineWidth = 1;
}

/** Paints everything; returns the layout, for pointers. */
function paint(canvas, map, mode, theme, brightness) {
  const scale = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const pen = canvas.getContext("2d"), style = getComputedStyle(document.documentElement), read = (name) => style.getPropertyValue(name).trim();
  const inks = { ground: read("--ground"), ink: read("--ink"), faint: read("--faint"), line: read("--line"), mark: read("--mark"), alarm: read("--alarm"), alarmInk: read("--alarm-ink") };
  pen.scale(scale, scale);
  pen.clearRect(0, 0, width, height);
  pen.font = "12px system-ui, 'DejaVu Sans', sans-serif";
  const layout = layoutOf(map, width, height), shown = modeOf(map, mode);
  paintCells(pen, map, layout, RAMPS[theme], theme === "dark" ? "#30323a" : "#dedee2", intensityOf(map, shown), brightness);
  paintAxes(pen, map, layout, inks);
  paintTotals(pen, map, layout, inks);
  paintLast(pen, map, layout, RAMPS[theme], inks, shown, brightness);
  paintNotes(pen, map, layout, inks);
  return layout;
}

function paintLegend(canvas, theme, ink, brightness) {
  const pen = canvas.getContext("2d"), width = canvas.width - 30;
  pen.clearRect(0, 0, canvas.width, canvas.height);
  for (let x = 0; x < width; x++) {
    pen.fillStyle = colourOf(RAMPS[theme], (x / (width - 1)) ** 2 * brightness);
    pen.fillRect(x, 2, 1, 11);
  }
  pen.font = "11px system-ui, 'DejaVu Sans', sans-serif";
  pen.fillStyle = ink;
  for (const share of [0, 0.01, 0.05, 0.25, 0.5, 1]) {
    pen.textAlign = share === 0 ? "left" : "center";
    pen.fillText(share ? percent(share) : "0", Math.sqrt(share) * width, 26);
  }
}
