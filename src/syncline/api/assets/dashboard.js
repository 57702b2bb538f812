// The dashboard works without this file. It adds live updates, selection, copy buttons and themes.

const live = document.getElementById("live");

function isBusy(part) {
  const active = document.activeElement;
  const isTyping = active && part.contains(active) && active.matches("input, select, textarea");
  return isTyping || part.querySelector("input:checked") !== null || isSelecting(part);
}

function isSelecting(part) {
  const selection = getSelection();
  return selection !== null && !selection.isCollapsed && part.contains(selection.anchorNode);
}

function keepState(old, fresh) {
  const opened = [...old.querySelectorAll("details")].map((details) => details.open);
  fresh.querySelectorAll("details").forEach((details, place) => { details.open = opened[place] ?? false; });
}

// Times stand in UTC. With a script they are local, and UTC on hover.
function localize(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const local = localTime(new Date(time.dateTime));
    if (time.dataset.at === undefined) time.title = `${local} here, ${time.title}`;
    else time.textContent = time.dataset.at === "short" ? local.slice(5, 16) : local;
  }
  const zone = root.getElementById("zone");
  if (zone) zone.textContent = `your time zone, ${Intl.DateTimeFormat().resolvedOptions().timeZone}; UTC on hover`;
}

function localTime(at) {
  const two = (number) => String(number).padStart(2, "0");
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

localize(document);

function replace(fresh) {
  localize(fresh);
  for (const part of document.querySelectorAll("[data-live]")) {
    const other = fresh.getElementById(part.id);
    if (!other || part.outerHTML === other.outerHTML || isBusy(part)) continue;
    keepState(part, other);
    const focused = part.contains(document.activeElement) ? document.activeElement : null;
    const place = focused ? [...part.querySelectorAll("a, button, summary")].indexOf(focused) : -1;
    part.replaceWith(document.adoptNode(other));
    if (place >= 0) document.getElementById(other.id).querySelectorAll("a, button, summary")[place]?.focus();
  }
}

// The page asks for itself again, because a stream would hold one of the browser's six connections
// to the server for each tab.
const EVERY = 2000, STALE_AFTER = 5000, PATIENCE = 3000;
let freshAt = Date.now(), isOffline = false, isLooking = false;

const isPaused = () => live.getAttribute("aria-pressed") !== "true";

function showState() {
  const age = Date.now() - freshAt;
  const isStale = age >= STALE_AFTER;
  const state = isOffline ? "Offline" : isStale ? `Stale for ${duration(age)}` : "Live";
  const text = isPaused() ? "Paused" : state;
  live.toggleAttribute("data-lost", !isPaused() && (isOffline || isStale));
  if (live.lastElementChild.textContent !== text) live.lastElementChild.textContent = text;
}

function duration(milliseconds) {
  const seconds = Math.round(milliseconds / 1000);
  return seconds < 120 ? `${seconds} s` : `${Math.round(seconds / 60)} min`;
}

async function look() {
  if (isLooking || document.hidden || isPaused()) return;
  isLooking = true;
  try {
    const answer = await fetch(location.href, { credentials: "same-origin", signal: AbortSignal.timeout(PATIENCE) });
    if (answer.redirected) return location.reload();
    isOffline = false;
    if (answer.ok) {
      if (!document.querySelector("[data-live]")) return location.reload();  // an error page
      replace(new DOMParser().parseFromString(await answer.text(), "text/html"));
      freshAt = Date.now();
    }
  } catch (error) {
    // A server that waits for its database answers late, or not at all: what is shown gets stale.
    isOffline = error.name !== "TimeoutError" || !navigator.onLine;
  } finally {
    isLooking = false;
    showState();
  }
}

if (live && document.querySelector("[data-live], [data-retry]")) {
  live.hidden = false;
  setInterval(() => { look(); showState(); }, EVERY);
  document.addEventListener("visibilitychange", look);
  live.addEventListener("click", () => {
    live.setAttribute("aria-pressed", String(isPaused()));
    showState();
    look();
  });
}

const find = document.getElementById("find");
const found = document.getElementById("found");
if (find) {
  const LOOK_AFTER = 200;
  let asked = 0, timer;
  const links = () => [find, ...found.querySelectorAll("li:nth-child(-n+7) a")];
  const close = () => { found.hidden = true; asked += 1; };
  const search = async () => {
    const text = find.value.trim(), number = ++asked;
    if (!text) return close();
    try {
      const answer = await fetch(`/search?list=1&q=${encodeURIComponent(text)}`, { credentials: "same-origin", signal: AbortSignal.timeout(PATIENCE) });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const results = page.getElementById("results");
      if (number !== asked || !results) return;
      localize(page);
      found.replaceChildren(...document.adoptNode(results).children);
      found.querySelectorAll("[id]").forEach((part) => { part.id = `found-${part.id}`; });
      found.querySelectorAll("[aria-labelledby]").forEach((part) => part.setAttribute("aria-labelledby", `found-${part.getAttribute("aria-labelledby")}`));
      found.hidden = false;
    } catch { /* Enter still asks the server */ }
  };
  find.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(search, LOOK_AFTER); });
  find.form.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") { close(); find.focus(); }
    if (!step || found.hidden) return;
    event.preventDefault();
    const all = links();
    all[(all.indexOf(document.activeElement) + step + all.length) % all.length].focus();
  });
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.closest("input, select, textarea, [contenteditable]");
    if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    find.focus();
    find.select();
  });
  document.addEventListener("click", (event) => { if (!find.form.contains(event.target)) close(); });
}

const theme = document.getElementById("theme");
if (theme) {
  const root = document.documentElement;
  const next = { undefined: "dark", dark: "light", light: undefined };
  const show = () => { theme.textContent = { dark: "Dark", light: "Light" }[root.dataset.theme] ?? "Auto"; };
  theme.hidden = false;
  show();
  theme.addEventListener("click", () => {
    const chosen = next[root.dataset.theme];
    if (chosen) root.dataset.theme = chosen; else delete root.dataset.theme;
    try {
      if (chosen) localStorage.setItem("theme", chosen); else localStorage.removeItem("theme");
    } catch { /* without storage, the choice lasts for this page only */ }
    show();
  });
}

for (const form of document.querySelectorAll("[data-bulk]")) {
  const summary = form.querySelector("[data-chosen]");
  const buttons = form.querySelectorAll("button[name=action]");
  const count = () => {
    const boxes = form.querySelectorAll("input[name=ids]");
    const chosen = [...boxes].filter((box) => box.checked).length;
    const all = form.querySelector("[data-all]");
    if (all) {
      all.checked = chosen > 0 && chosen === boxes.length;
      all.indeterminate = chosen > 0 && chosen < boxes.length;
    }
    buttons.forEach((button) => { button.disabled = chosen === 0; });
    summary.textContent = chosen ? `${chosen} selected` : "Select connections to act on them.";
  };
  form.addEventListener("change", (event) => {
    if (event.target.matches("[data-all]")) {
      form.querySelectorAll("input[name=ids]").forEach((box) => { box.checked = event.target.checked; });
    }
    count();
  });
  count();
}

document.addEventListener("submit", (event) => {
  const question = event.target.dataset.confirm;
  if (question && !confirm(question)) event.preventDefault();
});

if (navigator.clipboard) {
  for (const button of document.querySelectorAll("[data-copy], [data-copy-from]")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      const from = button.dataset.copyFrom;
      await navigator.clipboard.writeText(from ? document.querySelector(from).textContent : button.dataset.copy);
      button.textContent = "Copied";
    });
  }
}
