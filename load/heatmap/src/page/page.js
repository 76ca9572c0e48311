// The page itself: what is chosen, asking the server once a second, and showing the answer.

const byId = (id) => document.getElementById(id);
const chosen = { zoom: null, paused: false, theme: matchMedia("(prefers-color-scheme: light)").matches ? "light" : "dark" };
const shown = { whole: null, map: null, layout: null };
const isLive = PICTURES.length === 0;

function say(text, bad) {
  byId("state").textContent = text;
  byId("state").className = bad ? "bad" : "";
}

/** Choices live in the address, so that a link shows what was seen. */
function remember() {
  const choice = new URLSearchParams();
  for (const id of ["table", "metric", "since", "mode"]) choice.set(id, byId(id).value);
  choice.set("theme", chosen.theme);
  history.replaceState(null, "", "#" + choice);
}

function recall() {
  const choice = new URLSearchParams(location.hash.slice(1));
  for (const id of ["metric", "since", "mode"]) if ([...byId(id).options].some((option) => option.value === choice.get(id))) byId(id).value = choice.get(id);
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
  const mode = byId("mode").value, map = shown.map;
  shown.layout = paint(byId("map"), map, mode, chosen.theme);
  paintLegend(byId("legend"), chosen.theme, getComputedStyle(document.body).color);
  byId("of").textContent = modeOf(map, mode) === "absolute" ? `of one partition's capacity (${rateText(map.metric, capacityOf(map))})` : `of the brightest row (${rateText(map.metric, densityMax(map))})`;
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
  const text = (table) => `${table.name}  (N_eff ${short(table.balance.n_eff)} of ${table.balance.partitions}${table.verdict ? ", " + table.verdict : ""})`;
  select.replaceChildren(...tables.map((table) => Object.assign(document.createElement("option"), { value: table.name, textContent: text(table) })));
  if (tables.some((table) => table.name === before)) select.value = before;
}

async function refresh() {
  if (!byId("table").value) return say("no table has load yet");
  const query = new URLSearchParams({ table: byId("table").value, metric: byId("metric").value, since: byId("since").value, mode: byId("mode").value, rows: 256, columns: 240 });
  if (chosen.zoom) {
    query.set("until", chosen.zoom.to);
    query.set("since", chosen.zoom.to - chosen.zoom.from);
    query.set("from_key", chosen.zoom.fromKey);
    if (chosen.zoom.toKey !== null) query.set("to_key", chosen.zoom.toKey);
  }
  const asked = String(query), map = await ask("/v1/heatmap.json?" + query);
  // The reader may have chosen something else meanwhile.
  const isWanted = byId("table").value === query.get("table") && byId("metric").value === query.get("metric");
  if (asked && isWanted && !chosen.paused) show(map);
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
        await refresh();
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
    const wanted = PICTURES.filter((map) => map.table === byId("table").value);
    const map = wanted.find((map) => map.metric === byId("metric").value) ?? wanted[0];
    if (map) byId("metric").value = map.metric;
    if (map) show(map);
  } else {
    repaint();
    shown.wake?.();
  }
}

function zoomTo(zoom) {
  chosen.zoom = zoom;
  if (shown.whole) show(shown.whole);
  shown.wake?.();
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
  byId("map").addEventListener("dblclick", () => act("Escape"));
  addEventListener("keydown", (event) => {
    if (["SELECT", "BUTTON"].includes(event.target.tagName) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (act(event.key)) event.preventDefault();
  });
  addEventListener("resize", repaint);
  attachPointer(byId("map"), byId("tip"), () => ({ ...shown, lastKey: chosen.zoom?.toKey }), zoomTo, repaint);
  repaint();
  if (isLive) return void live();
  const seen = new Map(PICTURES.map((map) => [map.table, { name: map.table, balance: map.balance, verdict: map.verdicts.find((verdict) => verdict.until === null)?.class }]));
  fillTables([...seen.values()]);
  if (chosen.table && seen.has(chosen.table)) byId("table").value = chosen.table;
  byId("since").disabled = true;
  byId("pause").hidden = true;
  for (const option of byId("metric").options) option.disabled = !PICTURES.some((map) => map.metric === option.value);
  choose();
}

start();
