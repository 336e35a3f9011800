// Returns how many colours a picture has, the lightness of the commonest, and that of the darkest and the lightest.
async (url) => {
  const picture = new Image();
  picture.src = url;
  await picture.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [picture.width, picture.height];
  const paint = canvas.getContext("2d");
  paint.drawImage(picture, 0, 0);
  const pixels = new Uint32Array(paint.getImageData(0, 0, picture.width, picture.height).data.buffer);
  const counts = new Map();
  for (const pixel of pixels) {
    counts.set(pixel, (counts.get(pixel) ?? 0) + 1);
  }
  const lightness = (pixel) => (0.2126 * (pixel & 255) + 0.7152 * ((pixel >> 8) & 255) + 0.0722 * ((pixel >> 16) & 255)) / 255;
  const all = [...counts.keys()].map(lightness);
  const [commonest] = [...counts].reduce((most, next) => (next[1] > most[1] ? next : most));
  return {
    colours: counts.size,
    commonest: lightness(commonest),
    lowest: all.reduce((a, b) => Math.min(a, b)),
    highest: all.reduce((a, b) => Math.max(a, b)),
  };
}
