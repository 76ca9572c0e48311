// Pointer and keys over the map: what is under it, zoom by dragging, cells by arrow keys.

function tipText(map, row, column) {
  const span = map.rows[row], from = map.times[column], rate = map.cells[row][column];
  const [start, end] = partitionsIn(map, column).find(([first, after]) => first <= row && row < after) ?? [row, row + 1];
  let whole = 0;
  for (let at = start; at < end; at++) whole += map.cells[at][column];
  const capacity = capacityOf(map), lines = [`${span.start} to ${span.end}`, `${new Date(from * 1000).toLocaleString()}, ${map.step} s`];
  if (map.gaps.includes(column)) return [...lines, "no report"].join("\n");
  lines.push(`these keys: ${rateText(map.metric, rate)}`);
  lines.push(`their partition then: ${rateText(map.metric, whole)}` + (capacity === null || map.metric === "busy" ? "" : `, ${percent(whole / capacity)} of its capacity`));
  if (span.partition !== null) lines.push(`now in partition ${span.partition}` + (span.leader === null ? "" : `, led by node ${span.leader}`));
  if (span.partitions > 1) lines.push(`${span.partitions} partitions in this row`);
  for (const mark of map.marks) if (mark.row === row && mark.at >= from && mark.at < from + map.step) lines.push(`${SIGNS[mark.kind] ?? "?"} ${mark.text}`);
  return lines.join("\n");
}

/** `look` gives {map, layout}; `zoomTo` takes {from, to, fromKey, toKey}. */
function attachPointer(canvas, tip, look, zoomTo, repaint) {
  let drag = null, cell = null;
  const isIn = (area, x, y) => x >= area.x && x <= area.x + area.width && y >= area.y && y <= area.y + area.height;
  const outline = (x, y, width, height) => {
    repaint();
    const pen = canvas.getContext("2d");
    pen.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--mark").trim();
    pen.strokeRect(x + 0.5, y + 0.5, width, height);
  };
  const show = (row, column, x, y) => {
    const { map } = look();
    tip.textContent = tipText(map, row, column);
    tip.hidden = false;
    tip.style.left = Math.max(0, Math.min(x + 14, canvas.clientWidth - tip.offsetWidth - 4)) + "px";
    tip.style.top = Math.max(0, Math.min(y + 14, canvas.clientHeight - tip.offsetHeight - 4)) + "px";
  };
  canvas.addEventListener("pointerdown", (event) => {
    const { map, layout } = look();
    if (!map?.times.length || !isIn(layout.area, event.offsetX, event.offsetY)) return;
    drag = { x: event.offsetX, y: event.offsetY };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const { map, layout } = look();
    if (!map?.times.length) return;
    const [x, y] = [event.offsetX, event.offsetY];
    if (drag) outline(Math.min(x, drag.x), Math.min(y, drag.y), Math.abs(x - drag.x), Math.abs(y - drag.y));
    else if (isIn(layout.area, x, y)) {
      cell = { row: layout.rowAt(y), column: layout.columnAt(x) };
      show(cell.row, cell.column, x, y);
    } else tip.hidden = true;
  });
  canvas.addEventListener("pointerup", (event) => {
    if (!drag) return;
    const { map, layout } = look(), [x, y] = [event.offsetX, event.offsetY], start = drag;
    drag = null;
    if (Math.abs(x - start.x) < 5 && Math.abs(y - start.y) < 5) return repaint();
    // A drag that is flat in one direction keeps that axis whole.
    const wide = Math.abs(x - start.x) >= 5, high = Math.abs(y - start.y) >= 5;
    const times = wide ? [layout.timeAt(Math.min(x, start.x)), layout.timeAt(Math.max(x, start.x))] : [map.times[0], endOf(map)];
    const low = high ? layout.rowAt(Math.max(y, start.y)) : 0, top = high ? layout.rowAt(Math.min(y, start.y)) + 1 : map.rows.length;
    tip.hidden = true;
    zoomTo({ from: Math.floor(times[0]), to: Math.max(Math.ceil(times[1]), Math.floor(times[0]) + 1), fromKey: map.rows[low].key, toKey: map.rows[top]?.key ?? look().lastKey ?? null });
  });
  canvas.addEventListener("pointerleave", () => { if (!drag) tip.hidden = true; });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [1, 0], ArrowDown: [-1, 0] }[event.key], { map, layout } = look();
    if (!step || !map?.times.length) return;
    event.preventDefault();
    const jump = event.shiftKey ? 10 : 1, within = (at, count) => Math.min(Math.max(at, 0), count - 1);
    cell = cell ? { row: within(cell.row + step[0] * jump, map.rows.length), column: within(cell.column + step[1] * jump, map.times.length) } : { row: map.rows.length >> 1, column: map.times.length - 1 };
    const x = layout.columnX(cell.column), y = layout.y(cell.row + 1);
    outline(x, y, layout.columnX(cell.column + 1) - x, layout.y(cell.row) - y);
    show(cell.row, cell.column, x, y);
  });
}
