// What is known, without the page: brightness of cells, part of a picture, numbers as text.
// The rules of brightness are those of intensity.rs.

const HEX_PER_COLOUR = 7;
const RAMP_STEPS = 256;
const SIGNS = { split: "\u25c6", merge: "\u25a0", move: "\u25b6", transfer: "\u25b2" };
const METRIC_NAMES = { write_rows: "rows written/s", read_rows: "rows read/s", write_bytes: "bytes written/s", busy: "busy share", operations: "operations/s" };
const NAMES = { split: "split", merge: "merge", move: "move", transfer: "leader transfer" };

/** The colour of an intensity, 0 to 1. */
function colourOf(ramp, intensity) {
  const step = Math.round(Math.sqrt(Math.min(1, Math.max(0, intensity))) * (RAMP_STEPS - 1));
  return ramp.slice(step * HEX_PER_COLOUR, (step + 1) * HEX_PER_COLOUR);
}

/** The metric of a row; rows of a stacked picture may have several. */
function metricOf(map, row) {
  return row === undefined ? map.metric : map.rows[row].metric ?? map.metric;
}

/** One partition's capacity: of a row, or of the whole picture. */
function capacityOf(map, row) {
  const capacity = row === undefined ? map.capacity : map.rows[row].capacity ?? map.capacity;
  return capacity > 0 ? capacity : metricOf(map, row) === "busy" ? 1 : null;
}

/** The pictures in a stacked one: [first row, row after the last] of each. */
function partsOf(map) {
  const parts = [];
  map.rows.forEach((row, at) => {
    const last = parts[parts.length - 1];
    if (last && map.rows[last[0]].part === row.part) last[1] = at + 1;
    else parts.push([at, at + 1]);
  });
  return parts;
}

function modeOf(map, wanted) {
  return capacityOf(map) === null ? "relative" : wanted;
}

function endOf(map) {
  return map.times.length ? map.times[map.times.length - 1] + map.step : 0;
}

function areaOf(map, row) {
  return Math.max(map.rows[row].area ?? map.rows[row].height * map.rows.length, 1e-6);
}

function densityAt(map, row, column) {
  return map.cells[row][column] / areaOf(map, row);
}

function densityMax(map, [first, end] = [0, map.rows.length]) {
  let max = 0;
  for (let row = first; row < end; row++)
    for (let column = 0; column < map.times.length; column++) max = Math.max(max, densityAt(map, row, column));
  return max;
}

/** Groups of rows that were one partition in a column: [first, after the last]. */
function partitionsIn(map, column) {
  const starts = new Set([0, ...partsOf(map).map(([start]) => start)]);
  for (const bound of map.bounds) if (bound.from <= column && column < bound.to) starts.add(bound.row);
  const sorted = [...starts].sort((a, b) => a - b);
  return sorted.map((start, at) => [start, sorted[at + 1] ?? map.rows.length]);
}

/** Brightness of all cells, 0 to 1, by row and column. */
function intensityOf(map, wanted) {
  const shades = map.rows.map(() => new Float32Array(map.times.length));
  const isRelative = modeOf(map, wanted) === "relative", isAbsolute = (row) => !isRelative && capacityOf(map, row) !== null;
  // Of tables the brightest is the measure, of metrics each its own.
  for (const part of partsOf(map)) {
    if (isAbsolute(part[0])) continue;
    const max = densityMax(map, map.isMixed || !isRelative ? part : undefined) || 1;
    for (let row = part[0]; row < part[1]; row++) for (let column = 0; column < map.times.length; column++) shades[row][column] = densityAt(map, row, column) / max;
  }
  for (let column = 0; column < map.times.length; column++) {
    if (!map.bounds.some((bound) => bound.from <= column && column < bound.to)) {
      shades.forEach((line, row) => { if (isAbsolute(row)) line[column] = Math.min(1, map.cells[row][column] / capacityOf(map, row) / Math.max(1, map.rows[row].partitions)); });
      continue;
    }
    for (const [start, end] of partitionsIn(map, column)) {
      if (!isAbsolute(start)) continue;
      const capacity = capacityOf(map, start);
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
  let rows = map.rows.map((row, at) => at).filter((at) => zoom.fromKey === null || (map.rows[at + 1] === undefined || map.rows[at + 1].key > zoom.fromKey) && (zoom.toKey === null || map.rows[at].key < zoom.toKey));
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

/** Pictures above each other as one: of several tables, or of several metrics of one table. `pictures` are {name, map}. */
function stacked(pictures) {
  const finest = pictures.reduce((best, { map }) => (map.times.length && map.step < best.step ? map : best), pictures[0].map);
  const { times, step } = finest, count = pictures.length;
  const stack = { table: pictures.map(({ name }) => name).join(", "), metric: finest.metric, capacity: null, times, step, gaps: [], rows: [], cells: [], bounds: [], marks: [], verdicts: [], diagnoses: [], isStacked: true, isMixed: false };
  const covered = times.map(() => false);
  pictures.forEach(({ name, map }, part) => {
    const low = stack.rows.length, capacity = capacityOf(map);
    if (map.metric !== stack.metric) stack.isMixed = true;
    stack.capacity = capacity === null ? stack.capacity : Math.max(stack.capacity ?? 0, capacity);
    // Steps may differ: a column shows the rate of the one that it lies in.
    const at = times.map((time) => map.times.findLastIndex((start) => start <= time)).map((column, index) => (column >= 0 && times[index] < map.times[column] + map.step ? column : undefined));
    at.forEach((column, index) => { if (column !== undefined && !map.gaps.includes(column)) covered[index] = true; });
    map.rows.forEach((row, index) => {
      stack.rows.push({ ...row, height: row.height / count, area: row.height * map.rows.length, part, name: index === 0 ? name : undefined, table: map.table, metric: map.metric, capacity: capacity ?? 0 });
      stack.cells.push(at.map((column) => (column === undefined ? 0 : map.cells[index][column])));
    });
    // A diagnosis is about one picture, whose rows move up.
    for (const diagnosis of map.diagnoses ?? []) stack.diagnoses.push({ ...diagnosis, from_row: diagnosis.from_row + low, to_row: diagnosis.to_row + low, text: `${name}: ${diagnosis.text}` });
    const columnOf = (column) => { const found = at.findIndex((own) => own !== undefined && own >= column); return found < 0 ? times.length : found; };
    for (const bound of map.bounds) stack.bounds.push({ row: bound.row + low, from: columnOf(bound.from), to: columnOf(bound.to) });
    // Marks and verdicts of one table appear once, in its first picture.
    if (pictures.findIndex((other) => other.map.table === map.table) !== part) return;
    for (const mark of map.marks) stack.marks.push({ ...mark, row: mark.row + low, key: `${name} ${mark.key}` });
    for (const verdict of map.verdicts) stack.verdicts.push({ ...verdict, from_row: verdict.from_row + low, to_row: verdict.to_row + low, range: `${name} ${verdict.range}` });
  });
  stack.gaps = covered.map((isCovered, column) => (isCovered ? -1 : column)).filter((column) => column >= 0);
  const totals = pictures.map(({ map }) => map.balance.total), total = totals.reduce((sum, one) => sum + one, 0), squares = totals.reduce((sum, one) => sum + (one / total) ** 2, 0);
  stack.balance = { partitions: pictures.reduce((sum, { map }) => sum + map.balance.partitions, 0), n_eff: total > 0 ? 1 / squares : 0, max_over_mean: total > 0 ? (Math.max(...totals) * count) / total : 0, total, max: Math.max(...pictures.map(({ map }) => map.balance.max)) };
  return stack;
}

/** What all keys begin with, up to the end of a word; empty where that says little. */
function commonPrefix(labels) {
  if (labels.length < 2) return "";
  let prefix = labels[0];
  for (const label of labels) while (!label.startsWith(prefix)) prefix = prefix.slice(0, -1);
  prefix = prefix.slice(0, prefix.search(/[\p{L}\p{N}_.]*$/u));
  return prefix.length >= 4 ? prefix : "";
}

/** Positions behind the levels of a key: us-west2#3698#week1 has three. */
function levelEnds(key) {
  return [...key.matchAll(/[#/|]/g)].map((mark) => mark.index + 1);
}

/** A key without the leading levels that it shares with the one above it. */
function outlined(upper, key) {
  const end = upper === undefined ? undefined : levelEnds(key).findLast((end) => upper.startsWith(key.slice(0, end)));
  return end === undefined ? key : "\u2026" + key.slice(end);
}

/** Sums over the rows for each column, and means over the columns for each row, without gaps. */
function totalsOf(map) {
  const gaps = new Set(map.gaps), known = map.times.map((_, column) => column).filter((column) => !gaps.has(column));
  return {
    columns: map.times.map((_, column) => map.cells.reduce((sum, line) => sum + line[column], 0)),
    rows: map.cells.map((line) => known.reduce((sum, column) => sum + line[column], 0) / Math.max(known.length, 1)),
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
