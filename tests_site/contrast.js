// Returns the texts whose contrast with what is behind them is less than the least: the faintest of each kind of element.
(least) => {
  const paint = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const channels = (colour) => {
    paint.clearRect(0, 0, 1, 1);
    paint.fillStyle = colour;
    paint.fillRect(0, 0, 1, 1);
    return [...paint.getImageData(0, 0, 1, 1).data];
  };
  const over = (top, under) => [0, 1, 2].map((i) => (top[i] * top[3]) / 255 + under[i] * (1 - top[3] / 255));
  const luminance = (colour) => {
    const [r, g, b] = colour.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) {
      layers.unshift(channels(getComputedStyle(e).backgroundColor));
    }
    return layers.reduce((under, layer) => over(layer, under), [255, 255, 255]);
  };
  const faint = {};
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode.data.trim();
    const element = texts.currentNode.parentElement;
    const box = element.getBoundingClientRect();
    const seen = box.width && box.height && element.checkVisibility({ opacityProperty: true, visibilityProperty: true });
    if (!text || !seen || element.closest("script, style, svg")) {
      continue;
    }
    const under = behind(element);
    const [dark, light] = [luminance(over(channels(getComputedStyle(element).color), under)), luminance(under)].sort((a, b) => a - b);
    const contrast = (light + 0.05) / (dark + 0.05);
    const kind = `${element.tagName} ${element.className}`;
    if (contrast < least && !(faint[kind] && faint[kind][0] <= contrast)) {
      faint[kind] = [Math.round(contrast * 100) / 100, text.slice(0, 40)];
    }
  }
  return faint;
}
