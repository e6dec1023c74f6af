// Live update, times in the viewer's zone, and the key "/" for the search. The pages work without it.
(function () {
  "use strict";
  var skew = Date.now() - Number(document.body.dataset.now);
  var lastSeen = Date.now();

  function span(ms) {
    var s = Math.max(ms, 0) / 1000;
    if (s < 10) { return s.toFixed(1) + " s"; }
    if (s >= 172800) { return Math.round(s / 86400) + " d"; }
    if (s >= 7200) { return Math.round(s / 3600) + " h"; }
    if (s >= 120) { return Math.round(s / 60) + " min"; }
    return Math.round(s) + " s";
  }

  function localise(root) {
    root.querySelectorAll("time[data-at]").forEach(function (one) {
      var when = new Date(Number(one.dataset.at));
      one.textContent = when.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
      one.title = one.dateTime;
    });
    var zone = root.querySelector("#zone");
    if (zone) { zone.textContent = "Times are in " + Intl.DateTimeFormat().resolvedOptions().timeZone + "."; }
  }

  function tick() {
    document.querySelectorAll("time[data-since]").forEach(function (one) {
      one.textContent = span(Date.now() - skew - Number(one.dataset.since));
    });
  }

  // Replaces a part only where it differs, and keeps the focus in it.
  function replace(part, fresh) {
    if (part.dataset.shown === undefined ? part.innerHTML === fresh.innerHTML : part.dataset.shown === fresh.innerHTML) { return; }
    var focused = part.contains(document.activeElement) ? document.activeElement : null;
    var at = focused ? Array.from(part.querySelectorAll("a,button,input,select,pre")).indexOf(focused) : -1;
    var scrolled = focused && focused.tagName === "PRE" ? focused.scrollTop : 0;
    part.dataset.shown = fresh.innerHTML;
    part.className = fresh.className;
    part.innerHTML = fresh.innerHTML;
    localise(part);
    var again = at >= 0 ? part.querySelectorAll("a,button,input,select,pre")[at] : null;
    if (again) { again.focus({ preventScroll: true }); again.scrollTop = scrolled; }
  }

  var loading = false;
  var more = false;
  function update() {
    if (loading || document.hidden) { more = true; return; }
    loading = true;
    more = false;
    fetch(location.href, { headers: { accept: "text/html" }, credentials: "same-origin" }).then(function (answer) {
      if (answer.redirected && new URL(answer.url).pathname === "/login") { location.assign("/login"); }
      return answer.ok ? answer.text() : null;
    }).then(function (text) {
      if (text === null) { return; }
      var fresh = new DOMParser().parseFromString(text, "text/html");
      skew = Date.now() - Number(fresh.body.dataset.now);
      var main = document.querySelector("main");
      var freshMain = fresh.querySelector("main");
      var parts = Array.from(document.querySelectorAll("[data-live]"));
      var same = parts.length === fresh.querySelectorAll("[data-live]").length
        && parts.every(function (part) { return fresh.getElementById(part.id); });
      main.className = freshMain.className;
      if (same) {
        parts.forEach(function (part) { replace(part, fresh.getElementById(part.id)); });
      } else { // another page now, such as the first reading: all of it is new
        main.innerHTML = freshMain.innerHTML;
        replace(document.getElementById("notice"), fresh.getElementById("notice"));
        replace(document.getElementById("foot"), fresh.getElementById("foot"));
        localise(main);
      }
      tick();
    }).catch(function () { /* the event stream says that the server is away */ }).then(function () {
      loading = false;
      if (more && !document.hidden) { setTimeout(update, 500); }
    });
  }

  function lost(is) {
    var box = document.getElementById("lost");
    if (is && box.hidden) {
      document.getElementById("lost-since").textContent = new Date(lastSeen).toLocaleTimeString();
      document.querySelector("main").classList.add("old");
    }
    box.hidden = !is;
  }

  if (document.getElementById("notice")) {
    var events = new EventSource("/events");
    var begun = false;
    events.addEventListener("hello", function () {
      lastSeen = Date.now();
      lost(false);
      if (begun) { update(); }
      begun = true;
    });
    events.addEventListener("change", function () { lastSeen = Date.now(); update(); });
    events.addEventListener("error", function () { lost(true); });
    document.addEventListener("visibilitychange", function () { if (!document.hidden && more) { update(); } });
  }
  document.addEventListener("keydown", function (event) {
    var search = document.querySelector(".search input");
    var typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName);
    if (event.key === "/" && search && !typing) { event.preventDefault(); search.focus(); }
  });
  localise(document);
  tick();
  setInterval(tick, 1000);
})();
