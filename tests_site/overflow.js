// Returns what a narrow screen cuts off or tears: at most a few elements, and what is wrong with each.
() => {
  const wrong = [];
  const note = (what, element) => wrong.push(`${what}: ${element.tagName} ${element.textContent.trim().slice(0, 60)}`);
  const width = document.documentElement.scrollWidth;
  if (width > window.innerWidth) {
    wrong.push(`the page is ${width} wide`);
  }
  // Lines of the navigation and the footer end in an ellipsis on purpose.
  for (const element of document.querySelectorAll("article, article *")) {
    const style = getComputedStyle(element);
    const box = element.getBoundingClientRect();
    if (!box.width || !box.height || style.visibility === "hidden") {
      continue;
    }
    if (style.overflowX === "hidden" && element.clientWidth && element.scrollWidth > element.clientWidth + 1) {
      note("cut off", element);
    }
    if (box.right > window.innerWidth + 0.5 || box.left < -0.5) {
      let around = element.parentElement;
      while (around && !["auto", "scroll"].includes(getComputedStyle(around).overflowX)) {
        around = around.parentElement;
      }
      if (!around) {
        note("outside of the screen", element);
      }
    }
    if (element.matches("td code, th code") && !/[\s/.,=|()[\]-]/.test(element.textContent) && element.getClientRects().length > 1) {
      note("torn", element);
    }
  }
  return wrong.slice(0, 5);
}
