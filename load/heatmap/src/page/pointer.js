// Pointer and keys over the map: what is under it, zoom by dragging, cells by arrow keys.

function tipText(map, row, column) {
  const span = map.rows[row], from = map.times[column], rate = map.cells[row][column];
  const [start, end] = partitionsIn(map, column).find(([first, after]) => first <= row && row < after) ?? [row, row + 1];
  let whole = 0;
  for (let at = start; at < end; at++) whole += map.cells[at][column];
  const capacity = capacityOf(map, row), metric = metricOf(map, row), title = map.isStacked ? [`${span.table}, ${METRIC_NAMES[metric]}`] : [];
  const lines = [...title, `${span.start} to ${span.end}`, `${new Date(from * 1000).toLocaleString()}, ${map.step} s`];
  if (map.gaps.includes(column)) return [...lines, "no report"].join("\n");
  lines.push(`these keys: ${rateText(metric, rate)}`);
  lines.push(`their partition then: ${rateText(metric, whole)}` + (capacity === null || metric === "busy" ? "" : `, ${percent(whole / capacity)} of its capacity`));
  if (span.partition !== null) lines.push(`now in partition ${span.partition}` + (span.leader === null ? "" : `, led by node ${span.leader}`));
  if (span.partitions > 1) lines.push(`${span.partitions} partitions in this row`);
  for (const mark of map.marks) if (mark.row === row && mark.at >= from && mark.at < from + map.step) lines.push(`${SIGNS[mark.kind] ?? "?"} ${mark.text}`);
  return lines.join("\n");
}

/** `look` gives {map, layout}; `zoomTo` takes {from, to, fromKey, toKey}; `say` shows a line. */
function attachPointer(canvas, tip, look, zoomTo, repaint, say) {
  let drag = null, cell = null, isPinned = false;
  const words = element("div"), copy = element("button", "Copy"), close = element("button", "Unpin");
  const tools = element("div", undefined, "tools");
  tools.append(copy, close);
  tip.replaceChildren(words, tools);
  const pin = (wanted) => {
    isPinned = wanted && cell !== null;
    tip.classList.toggle("pinned", isPinned);
    tip.hidden = !isPinned;
    repaint();
    if (isPinned) frame(cell);
  };
  const copyText = async () => {
    try {
      await navigator.clipboard.writeText(words.textContent);
      say("copied");
    } catch {
      // Without the right to write there, the text is selected for the reader to copy.
      getSelection().selectAllChildren(words);
      say("selected: copy it with Ctrl+C");
    }
  };
  copy.addEventListener("click", copyText);
  close.addEventListener("click", () => pin(false));
  const isIn = (area, x, y) => x >= area.x && x <= area.x + area.width && y >= area.y && y <= area.y + area.height;
  const outline = (x, y, width, height) => {
    repaint();
    const pen = canvas.getContext("2d");
    pen.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--mark").trim();
    pen.strokeRect(x + 0.5, y + 0.5, width, height);
  };
  const frame = ({ row, column }) => {
    const { layout } = look(), x = layout.columnX(column), y = layout.y(row + 1);
    outline(x, y, layout.columnX(column + 1) - x, layout.y(row) - y);
  };
  const show = (row, column, x, y) => {
    const { map } = look();
    words.textContent = tipText(map, row, column);
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
    else if (isPinned) return;
    else if (isIn(layout.area, x, y)) {
      cell = { row: layout.rowAt(y), column: layout.columnAt(x) };
      show(cell.row, cell.column, x, y);
    } else tip.hidden = true;
  });
  canvas.addEventListener("pointerup", (event) => {
    if (!drag) return;
    const { map, layout } = look(), [x, y] = [event.offsetX, event.offsetY], start = drag;
    drag = null;
    if (Math.abs(x - start.x) < 5 && Math.abs(y - start.y) < 5) {
      // A click pins what it is on, and the next one lets go.
      if (!isPinned) {
        cell = { row: layout.rowAt(y), column: layout.columnAt(x) };
        show(cell.row, cell.column, x, y);
      }
      return pin(!isPinned);
    }
    pin(false);
    // A drag that is flat in one direction keeps that axis whole.
    const wide = Math.abs(x - start.x) >= 5, high = Math.abs(y - start.y) >= 5;
    const times = wide ? [layout.timeAt(Math.min(x, start.x)), layout.timeAt(Math.max(x, start.x))] : [map.times[0], endOf(map)];
    if (map.isStacked) return zoomTo({ from: Math.floor(times[0]), to: Math.max(Math.ceil(times[1]), Math.floor(times[0]) + 1), fromKey: null, toKey: null });
    const low = high ? layout.rowAt(Math.max(y, start.y)) : 0, top = high ? layout.rowAt(Math.min(y, start.y)) + 1 : map.rows.length;
    tip.hidden = true;
    zoomTo({ from: Math.floor(times[0]), to: Math.max(Math.ceil(times[1]), Math.floor(times[0]) + 1), fromKey: map.rows[low].key, toKey: map.rows[top]?.key ?? look().lastKey ?? null });
  });
  canvas.addEventListener("pointerleave", () => { if (!drag && !isPinned) tip.hidden = true; });
  canvas.addEventListener("keydown", (event) => {
    if (event.key === "p" && cell) return pin(!isPinned);
    if (event.key === "c" && !event.ctrlKey && !event.metaKey && !tip.hidden) return void copyText();
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [1, 0], ArrowDown: [-1, 0] }[event.key], { map, layout } = look();
    if (!step || !map?.times.length) return;
    event.preventDefault();
    const jump = event.shiftKey ? 10 : 1, within = (at, count) => Math.min(Math.max(at, 0), count - 1);
    cell = cell ? { row: within(cell.row + step[0] * jump, map.rows.length), column: within(cell.column + step[1] * jump, map.times.length) } : { row: map.rows.length >> 1, column: map.times.length - 1 };
    frame(cell);
    show(cell.row, cell.column, layout.columnX(cell.column), layout.y(cell.row + 1));
  });
}
