/* The script of an explorable is fetched within a screen of one, and at once where the address names a state. */
(() => {
  "use strict";
  const { src } = document.currentScript;
  const near = new IntersectionObserver((seen) => {
    if (!location.hash.includes("?") && !seen.some((one) => one.isIntersecting)) return;
    near.disconnect();
    document.head.append(Object.assign(document.createElement("script"), { src: new URL("attention.js", src) }));
  }, { rootMargin: "100%" });
  function watch() {
    if (customElements.get("attention-explorable")) return;
    for (const figure of document.querySelectorAll("figure.attention")) near.observe(figure);
  }
  if (typeof document$ === "undefined") watch();
  else document$.subscribe(watch);
})();
