// The words beside the map: facts above it, verdicts and marks in the panel. All text is set as text.

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

/** Facts of a stacked picture: tables beside each other, or the totals of each metric. */
function stackedFacts(map) {
  const parts = partsOf(map), balance = map.balance;
  if (map.isMixed) return parts.map(([row]) => [String(lastOf(map).filter(([start]) => map.rows[start].part === map.rows[row].part).length), `partitions: ${METRIC_NAMES[metricOf(map, row)]}`]);
  return [[short(balance.n_eff), `N_eff of ${parts.length} tables`], [String(balance.partitions), "partitions"], [rateText(map.metric, balance.total), "all tables now"], [rateText(map.metric, balance.max), "busiest partition now"]];
}

function showFacts(into, map) {
  const balance = map.balance;
  const facts = map.isStacked ? stackedFacts(map) : [
    [short(balance.n_eff), `N_eff of ${balance.partitions} partitions`],
    [short(balance.max_over_mean), "max / mean"],
    [rateText(map.metric, balance.total), "whole table now"],
    [rateText(map.metric, balance.max), "busiest partition now"],
  ];
  if (map.metric === "busy" && !map.isStacked) facts.splice(2, 1);
  const capacity = capacityOf(map);
  if (capacity !== null && map.metric !== "busy" && !map.isStacked) facts.push([rateText(map.metric, capacity), "one partition's capacity"]);
  into.replaceChildren(...facts.map(([value, name]) => {
    const fact = element("div");
    fact.append(element("b", value), element("span", name));
    return fact;
  }));
}

function verdictCard(verdict) {
  const card = element("article", undefined, verdict.until === null ? "" : "past");
  const when = `since ${clock(verdict.since, 0)}` + (verdict.until === null ? "" : ` until ${clock(verdict.until, 0)}`);
  card.append(element("b", verdict.class), element("p", verdict.range), element("small", when), element("p", verdict.evidence));
  if (verdict.advice) card.append(element("code", verdict.advice));
  return card;
}

/** A diagnosis with its threshold; the text says what the figure is. */
function diagnosisCard(diagnosis) {
  const card = element("article"), isShare = diagnosis.kind !== "BURSTS";
  const threshold = isShare ? percent(diagnosis.threshold) : `${short(diagnosis.threshold)} times the mean`;
  card.append(element("b", diagnosis.kind), element("p", diagnosis.text), element("small", `named from ${threshold} on`));
  return card;
}

function showSide(into, map) {
  const diagnoses = map.diagnoses ?? [], parts = [element("h2", "Diagnoses")];
  if (!diagnoses.length) parts.push(element("p", "None: no pattern stands out."));
  parts.push(...diagnoses.slice(0, 30).map(diagnosisCard), element("h2", "Verdicts"));
  const verdicts = [...map.verdicts].sort((a, b) => (a.until !== null) - (b.until !== null) || b.since - a.since);
  if (!verdicts.length) parts.push(element("p", "None: no partition is hot."));
  parts.push(...verdicts.slice(0, 30).map(verdictCard));
  const list = element("ul");
  for (const mark of [...map.marks].sort((a, b) => b.at - a.at).slice(0, 100)) {
    const item = element("li");
    item.append(element("b", `${SIGNS[mark.kind] ?? "?"} ${NAMES[mark.kind] ?? mark.kind} `), element("time", clock(mark.at, 0)), element("div", `${mark.key}: ${mark.text}`));
    list.append(item);
  }
  parts.push(element("h2", `Splits, merges, moves (${map.marks.length})`), list);
  // What a reader is selecting must not vanish under the pointer once a second.
  const text = JSON.stringify([diagnoses, map.verdicts, map.marks]);
  if (into.dataset.shown !== text) {
    into.dataset.shown = text;
    into.replaceChildren(...parts);
  }
}
