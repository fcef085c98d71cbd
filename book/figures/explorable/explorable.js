/* The script of a figure that answers is fetched within a screen of one, and at once where the address names a state. */
(() => {
  "use strict";
  const { src } = document.currentScript;
  const near = new IntersectionObserver((seen) => {
    for (const { isIntersecting, target } of seen) {
      if (!isIntersecting && !location.hash.includes("?")) continue;
      near.unobserve(target);
      document.head.append(Object.assign(document.createElement("script"), { src: new URL(target.dataset.script, src) }));
    }
  }, { rootMargin: "100%" });
  function watch() {
    for (const figure of document.querySelectorAll("[data-script]")) near.observe(figure);
  }
  if (typeof document$ === "undefined") watch();
  else document$.subscribe(watch);
})();
