// The page itself: what is chosen, asking the server once a second, and showing the answer.

const byId = (id) => document.getElementById(id);
const chosen = { zoom: null, paused: false, theme: matchMedia("(prefers-color-scheme: light)").matches ? "light" : "dark" };
const shown = { whole: null, map: null, layout: null, tables: [] };
const isLive = PICTURES.length === 0;
/** The choice of all tables, how many of them are drawn at most, and how often stacked pictures are asked for, seconds. */
const ALL = "*", TABLES_MAX = 12, STACKED_EVERY = 5;

function say(text, bad) {
  byId("state").textContent = text;
  byId("state").className = bad ? "bad" : "";
}

/** Choices live in the address, so that a link shows what was seen. */
function remember() {
  const choice = new URLSearchParams();
  for (const id of ["table", "metric", "since", "mode", "bright"]) choice.set(id, byId(id).value);
  choice.set("theme", chosen.theme);
  history.replaceState(null, "", "#" + choice);
}

function recall() {
  const choice = new URLSearchParams(location.hash.slice(1));
  for (const id of ["metric", "since", "mode"]) if ([...byId(id).options].some((option) => option.value === choice.get(id))) byId(id).value = choice.get(id);
  if (choice.has("bright")) byId("bright").value = choice.get("bright");
  if (["dark", "light"].includes(choice.get("theme"))) chosen.theme = choice.get("theme");
  return choice.get("table");
}

function repaint() {
  document.documentElement.dataset.theme = chosen.theme;
  byId("theme").textContent = chosen.theme === "dark" ? "Light" : "Dark";
  byId("pause").textContent = chosen.paused ? "Go on" : "Pause";
  byId("reset").disabled = !chosen.zoom;
  if (!shown.whole) return;
  shown.map = cropped(shown.whole, chosen.zoom);
  const mode = byId("mode").value, map = shown.map, brightness = 2 ** Number(byId("bright").value);
  shown.layout = paint(byId("map"), map, mode, chosen.theme, brightness);
  paintLegend(byId("legend"), chosen.theme, getComputedStyle(document.body).color, brightness);
  byId("of").textContent = map.isStacked ? (modeOf(map, mode) === "absolute" ? "of one partition's capacity" : "of the brightest row") : modeOf(map, mode) === "absolute" ? `of one partition's capacity (${rateText(map.metric, capacityOf(map))})` : `of the brightest row (${rateText(map.metric, densityMax(map))})`;
}

function show(map) {
  shown.whole = map;
  repaint();
  showFacts(byId("facts"), map);
  showSide(byId("side"), shown.map);
}

async function ask(address) {
  const answer = await fetch(address, { headers: { accept: "application/json" } }), body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(body.error ?? `${address}: ${answer.status}`);
  return body;
}

function fillTables(tables) {
  const select = byId("table"), before = select.value;
  shown.tables = tables.map((table) => table.name);
  const text = (table) => `${table.name}  (N_eff ${short(table.balance.n_eff)} of ${table.balance.partitions}${table.verdict ? ", " + table.verdict : ""})`;
  const option = (value, textContent) => Object.assign(document.createElement("option"), { value, textContent });
  const all = tables.length > 1 ? [option(ALL, `all tables (${Math.min(tables.length, TABLES_MAX)} with the most load)`)] : [];
  select.replaceChildren(...tables.map((table) => option(table.name, text(table))), ...all);
  if ([...select.options].some((option) => option.value === before)) select.value = before;
}

/** What is to be drawn: one picture, or several that are stacked. Of all tables one metric is drawn. */
function wanted() {
  const table = byId("table").value, metric = byId("metric").value;
  if (table === ALL) return shown.tables.slice(0, TABLES_MAX).map((name) => ({ name, table: name, metric: metric === "all" ? "write_rows" : metric }));
  if (metric === "all") return Object.entries(METRIC_NAMES).map(([metric, name]) => ({ name, table, metric }));
  return [{ name: table, table, metric }];
}

async function fetchPicture({ table, metric }, rows) {
  const query = new URLSearchParams({ table, metric, since: byId("since").value, mode: byId("mode").value, rows, columns: 240 });
  if (chosen.zoom) {
    query.set("until", chosen.zoom.to);
    query.set("since", chosen.zoom.to - chosen.zoom.from);
    if (chosen.zoom.fromKey !== null) query.set("from_key", chosen.zoom.fromKey);
    if (chosen.zoom.toKey !== null) query.set("to_key", chosen.zoom.toKey);
  }
  return ask("/v1/heatmap.json?" + query);
}

async function refresh() {
  if (!byId("table").value) return say("no table has load yet");
  const pictures = wanted(), choice = byId("table").value + " " + byId("metric").value;
  const maps = await Promise.all(pictures.map((picture) => fetchPicture(picture, Math.max(16, Math.floor(256 / pictures.length)))));
  const map = maps.length > 1 ? stacked(maps.map((map, at) => ({ name: pictures[at].name, map }))) : maps[0];
  // The reader may have chosen something else meanwhile.
  if (byId("table").value + " " + byId("metric").value === choice && !chosen.paused) show(map);
  say(`${clock(endOf(map), 0)}, ${map.step} s a column`);
}

async function live() {
  for (let round = 0; ; round++) {
    try {
      if (!chosen.paused && !document.hidden) {
        if (round % 10 === 0) {
          fillTables((await ask("/v1/tables.json")).tables);
          if (round === 0 && chosen.table) byId("table").value = chosen.table;
        }
        if (chosen.isDue || wanted().length < 2 || round % STACKED_EVERY === 0) {
          chosen.isDue = false;
          await refresh();
        }
      }
    } catch (error) {
      say(String(error.message ?? error), true);
    }
    await new Promise((wake) => { shown.wake = wake; setTimeout(wake, 1000); });
  }
}

function choose() {
  remember();
  if (!isLive) {
    const known = ({ table, metric }) => PICTURES.find((map) => map.table === table && map.metric === metric);
    const stack = wanted().map((picture) => ({ name: picture.name, map: known(picture) })).filter(({ map }) => map);
    const map = stack.length > 1 ? stacked(stack) : stack[0]?.map ?? PICTURES.find((map) => map.table === byId("table").value);
    if (map && !map.isStacked) byId("metric").value = map.metric;
    if (map) show(map);
  } else {
    repaint();
    chosen.isDue = true;
    shown.wake?.();
  }
}

function zoomTo(zoom) {
  chosen.zoom = zoom;
  if (shown.whole) show(shown.whole);
  chosen.isDue = true;
  shown.wake?.();
}

/** A double click on one of several tables opens it; on one table it shows the whole map. */
function openTable(event) {
  const { map, layout } = shown, table = map?.isStacked && !map.isMixed ? map.rows[layout.rowAt(event.offsetY)]?.table : undefined;
  if (table === undefined) return act("Escape");
  byId("table").value = table;
  chosen.zoom = null;
  choose();
}

function act(key) {
  if (key === "Escape") zoomTo(null);
  else if (key === " ") { chosen.paused = !chosen.paused; say(chosen.paused ? "paused" : ""); choose(); }
  else if (key === "d") { chosen.theme = chosen.theme === "dark" ? "light" : "dark"; choose(); }
  else if (key === "m") { byId("mode").value = byId("mode").value === "absolute" ? "relative" : "absolute"; choose(); }
  else return false;
  return true;
}

function start() {
  chosen.table = recall();
  for (const id of ["table", "metric", "since", "mode"]) byId(id).addEventListener("change", () => { if (id === "table" || id === "since") chosen.zoom = null; choose(); });
  byId("pause").addEventListener("click", () => act(" "));
  byId("reset").addEventListener("click", () => act("Escape"));
  byId("theme").addEventListener("click", () => act("d"));
  byId("bright").addEventListener("input", () => { remember(); repaint(); });
  byId("map").addEventListener("dblclick", openTable);
  addEventListener("keydown", (event) => {
    if (["SELECT", "BUTTON", "INPUT"].includes(event.target.tagName) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (act(event.key)) event.preventDefault();
  });
  addEventListener("resize", repaint);
  attachPointer(byId("map"), byId("tip"), () => ({ ...shown, lastKey: chosen.zoom?.toKey }), zoomTo, repaint, say);
  repaint();
  if (isLive) return void live();
  const seen = new Map(PICTURES.map((map) => [map.table, { name: map.table, balance: map.balance, verdict: map.verdicts.find((verdict) => verdict.until === null)?.class }]));
  fillTables([...seen.values()]);
  if ([...byId("table").options].some((option) => option.value === chosen.table)) byId("table").value = chosen.table;
  byId("since").disabled = true;
  byId("pause").hidden = true;
  for (const option of byId("metric").options) option.disabled = option.value === "all" ? new Set(PICTURES.map((map) => map.metric)).size < 2 : !PICTURES.some((map) => map.metric === option.value);
  choose();
}

start();
