// What is known, without the page: brightness of cells, part of a picture, numbers as text.
// The rules of brightness are those of intensity.rs.

const HEX_PER_COLOUR = 7;
const RAMP_STEPS = 256;
const SIGNS = { split: "\u25c6", merge: "\u25a0", move: "\u25b6", transfer: "\u25b2" };
const NAMES = { split: "split", merge: "merge", move: "move", transfer: "leader transfer" };

/** The colour of an intensity, 0 to 1. */
function colourOf(ramp, intensity) {
  const step = Math.round(Math.sqrt(Math.min(1, Math.max(0, intensity))) * (RAMP_STEPS - 1));
  return ramp.slice(step * HEX_PER_COLOUR, (step + 1) * HEX_PER_COLOUR);
}

function capacityOf(map) {
  return map.capacity > 0 ? map.capacity : map.metric === "busy" ? 1 : null;
}

function modeOf(map, wanted) {
  return capacityOf(map) === null ? "relative" : wanted;
}

function endOf(map) {
  return map.times.length ? map.times[map.times.length - 1] + map.step : 0;
}

function densityAt(map, row, column) {
  return map.cells[row][column] / Math.max(map.rows[row].height * map.rows.length, 1e-6);
}

function densityMax(map) {
  let max = 0;
  for (let row = 0; row < map.rows.length; row++)
    for (let column = 0; column < map.times.length; column++) max = Math.max(max, densityAt(map, row, column));
  return max;
}

/** Groups of rows that were one partition in a column: [first, after the last]. */
function partitionsIn(map, column) {
  const starts = new Set([0]);
  for (const bound of map.bounds) if (bound.from <= column && column < bound.to) starts.add(bound.row);
  const sorted = [...starts].sort((a, b) => a - b);
  return sorted.map((start, at) => [start, sorted[at + 1] ?? map.rows.length]);
}

/** Brightness of all cells, 0 to 1, by row and column. */
function intensityOf(map, wanted) {
  const shades = map.rows.map(() => new Float32Array(map.times.length));
  if (modeOf(map, wanted) === "relative") {
    const max = densityMax(map) || 1;
    shades.forEach((line, row) => { for (let column = 0; column < line.length; column++) line[column] = densityAt(map, row, column) / max; });
    return shades;
  }
  const capacity = capacityOf(map);
  for (let column = 0; column < map.times.length; column++) {
    if (!map.bounds.some((bound) => bound.from <= column && column < bound.to)) {
      shades.forEach((line, row) => { line[column] = Math.min(1, map.cells[row][column] / capacity / Math.max(1, map.rows[row].partitions)); });
      continue;
    }
    for (const [start, end] of partitionsIn(map, column)) {
      let rate = 0, weighted = 0;
      for (let row = start; row < end; row++) {
        rate += map.cells[row][column];
        weighted += map.cells[row][column] * densityAt(map, row, column);
      }
      if (rate <= 0) continue;
      const typical = weighted / rate, busy = Math.min(1, rate / capacity);
      for (let row = start; row < end; row++) shades[row][column] = busy * Math.min(1, densityAt(map, row, column) / typical);
    }
  }
  return shades;
}

/** The part of a picture that a zoom asks for; the picture itself without one. */
function cropped(map, zoom) {
  if (!zoom) return map;
  let columns = map.times.map((at, column) => column).filter((column) => map.times[column] + map.step > zoom.from && map.times[column] < zoom.to);
  let rows = map.rows.map((row, at) => at).filter((at) => (map.rows[at + 1] === undefined || map.rows[at + 1].key > zoom.fromKey) && (zoom.toKey === null || map.rows[at].key < zoom.toKey));
  if (!columns.length || !rows.length) return map;
  const [left, low] = [columns[0], rows[0]];
  const clip = (at, base, count) => Math.min(Math.max(at - base, 0), count);
  const height = rows.reduce((sum, row) => sum + map.rows[row].height, 0);
  const isIn = (row) => row >= low && row < low + rows.length;
  const until = map.times[columns[columns.length - 1]] + map.step;
  return {
    ...map,
    times: columns.map((column) => map.times[column]),
    gaps: map.gaps.filter((gap) => columns.includes(gap)).map((gap) => gap - left),
    rows: rows.map((row) => ({ ...map.rows[row], height: map.rows[row].height / height })),
    cells: rows.map((row) => columns.map((column) => map.cells[row][column])),
    bounds: map.bounds.filter((bound) => isIn(bound.row)).map((bound) => ({ row: bound.row - low, from: clip(bound.from, left, columns.length), to: clip(bound.to, left, columns.length) })).filter((bound) => bound.from < bound.to),
    marks: map.marks.filter((mark) => isIn(mark.row) && mark.at >= map.times[left] && mark.at <= until).map((mark) => ({ ...mark, row: mark.row - low })),
    verdicts: map.verdicts.filter((verdict) => verdict.to_row > low && verdict.from_row < low + rows.length && verdict.since < until && (verdict.until === null || verdict.until >= map.times[left])).map((verdict) => ({ ...verdict, from_row: clip(verdict.from_row, low, rows.length), to_row: clip(verdict.to_row, low, rows.length) })),
  };
}

/** The first row of each line of pixels: edges from below, 0 to 1. */
function edgesOf(map) {
  const edges = [0];
  for (const row of map.rows) edges.push(edges[edges.length - 1] + row.height);
  edges[edges.length - 1] = 1;
  return edges;
}

function short(value) {
  const [scaled, unit] = value >= 1e9 ? [value / 1e9, "G"] : value >= 1e6 ? [value / 1e6, "M"] : value >= 1e3 ? [value / 1e3, "k"] : [value, ""];
  return String(Number(scaled.toPrecision(3))) + unit;
}

function percent(share) {
  return short(Math.round(share * 1000) / 10) + " %";
}

function rateText(metric, value) {
  return metric === "busy" ? percent(value) : metric === "write_bytes" ? short(value) + "B/s" : short(value) + " rows/s";
}

/** A time by the reader's own clock. */
function clock(at, span) {
  const time = new Date(at * 1000), two = (number) => String(number).padStart(2, "0");
  const day = `${two(time.getMonth() + 1)}-${two(time.getDate())}`, minutes = `${two(time.getHours())}:${two(time.getMinutes())}`;
  return span > 2 * 86400 ? `${day} ${minutes}` : span > 1800 ? minutes : `${minutes}:${two(time.getSeconds())}`;
}

/** Nice times between two others, at most so many. */
function ticksOf(from, to, most) {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 43200, 86400, 172800];
  const step = steps.find((step) => (to - from) / step <= most) ?? 604800;
  const found = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) found.push(at);
  return found;
}
