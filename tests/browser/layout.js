// What the tests of the layout ask a page: an object of functions.
({
  // Texts that leave the box they stand in, unless a box around them scrolls or shows "…".
  escapes() {
    const found = [], root = document.documentElement;
    const excess = root.scrollWidth - innerWidth;
    if (excess > 0) found.push(`the page is ${excess} px too wide`);
    const scrolls = (one) => /auto|scroll/.test(getComputedStyle(one).overflowX);
    const unseen = ".unseen, .skip, thead, datalist, option, progress, title, script, style, svg";
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
      const text = walk.currentNode, parent = text.parentElement;
      if (!text.data.trim() || parent.closest(unseen) || !parent.checkVisibility()) continue;
      const around = [];
      for (let box = parent; box && box !== document.body; box = box.parentElement) around.push(box);
      if (around.some(scrolls)) continue;
      const range = document.createRange();
      range.selectNodeContents(text);
      const inside = range.getBoundingClientRect();
      for (const box of around) {
        const style = getComputedStyle(box);
        if (style.textOverflow === "ellipsis") break;
        if (style.display === "inline") continue;
        const outside = box.getBoundingClientRect();
        const by = Math.max(inside.right - outside.right, outside.left - inside.left);
        if (by > 1.5) {
          const words = text.data.trim().slice(0, 30);
          found.push(`"${words}" leaves ${box.localName}.${box.className} by ${Math.round(by)} px`);
          break;
        }
      }
    }
    return found;
  },

  // What a keyboard should reach: of radio buttons, the one that is chosen.
  focusable() {
    const all = "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex='0']";
    const isOther = (one) => one.type === "radio" && !one.checked &&
      one.form.querySelector(`[name="${one.name}"]:checked`) !== null;
    return [...document.querySelectorAll(all)]
      .filter((one) => one.checkVisibility() && !one.disabled && !isOther(one));
  },

  focused() {
    const one = document.activeElement, style = getComputedStyle(one);
    const box = one.getBoundingClientRect();
    return {
      html: one.outerHTML.slice(0, 80),
      name: (one.labels?.[0]?.textContent || one.ariaLabel || one.textContent).trim(),
      place: this.focusable().indexOf(one),
      isOutlined: parseFloat(style.outlineWidth) > 0 && style.outlineStyle !== "none",
      isSeen: box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth,
    };
  },

  // The words that do not depend on the moment.
  said() {
    return [...document.querySelectorAll("main :is(h1, h2, h3, th, label, dt, legend)")]
      .map((one) => one.textContent.trim().replace(/\s+/g, " ")).filter(Boolean);
  },
})
