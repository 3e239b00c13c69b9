(() => {
  "use strict";
  const root = document.documentElement;
  const all = (selector) => [...document.querySelectorAll(selector)];

  // theme: auto, light, dark; a file opened from disk may have no storage
  const store = { get: () => { try { return localStorage.getItem("auditrl-theme"); } catch { return null; } },
                  set: (value) => { try { localStorage.setItem("auditrl-theme", value); } catch { /* stays for this visit */ } } };
  const themes = ["auto", "light", "dark"];
  const button = document.getElementById("theme");
  const show = (theme) => {
    if (theme === "auto") delete root.dataset.theme; else root.dataset.theme = theme;
    button.textContent = "Theme: " + theme;
  };
  let theme = themes.includes(store.get()) ? store.get() : "auto";
  show(theme);
  button.addEventListener("click", () => { theme = themes[(themes.indexOf(theme) + 1) % 3]; show(theme); store.set(theme); });

  // a link into a closed audit opens it
  const reveal = () => {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let node = target; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
    if (target.classList.contains("msg")) {
      all(".flash").forEach((node) => node.classList.remove("flash"));
      target.classList.add("flash");
      target.focus({ preventScroll: true });
    }
    target.scrollIntoView({ block: target.classList.contains("msg") ? "center" : "start" });
  };
  addEventListener("hashchange", reveal);
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    if (link && link.getAttribute("href") === location.hash) { event.preventDefault(); reveal(); }
  });
  reveal();

  const setAll = (open) => all("details.audit").forEach((node) => { node.open = open; });
  document.getElementById("open-all")?.addEventListener("click", () => setAll(true));
  document.getElementById("close-all")?.addEventListener("click", () => setAll(false));

  // j and k walk through the messages that are visible
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !["j", "k"].includes(event.key)) return;
    const messages = all("article.msg").filter((node) => node.offsetParent !== null);
    if (!messages.length) return;
    const here = messages.indexOf(document.activeElement);
    const below = messages.findIndex((node) => node.getBoundingClientRect().top > 70);
    const next = here >= 0 ? here + (event.key === "j" ? 1 : -1) : below >= 0 ? below : 0;
    const message = messages[Math.min(Math.max(next, 0), messages.length - 1)];
    message.focus({ preventScroll: true });
    message.scrollIntoView({ block: "center" });
  });

  // the section in view is the current one
  const links = new Map(all(".links a").map((link) => [link.getAttribute("href").slice(1), link]));
  if ("IntersectionObserver" in window) {
    const seen = new IntersectionObserver((entries) => entries.forEach((entry) => {
      if (!entry.isIntersecting) return;
      links.forEach((link) => link.removeAttribute("aria-current"));
      links.get(entry.target.id)?.setAttribute("aria-current", "true");
    }), { rootMargin: "-15% 0px -75% 0px" });
    links.forEach((_, id) => { const node = document.getElementById(id); if (node) seen.observe(node); });
  }
})();
