"use strict";

// The bars of a timeline are written into a buffer of pixels, which goes to the canvas in one piece: tens of thousands of small
// rectangles cost the canvas tens of milliseconds, and a buffer one or two.

// "#rrggbb" as a pixel of the buffer (little-endian: a b g r).
function packColour(hex) {
  const value = parseInt(hex.slice(1), 16);
  return (0xff000000 | (value & 0xff) << 16 | value & 0xff00 | value >> 16) >>> 0;
}

// A square of pixels that repeats. Pixels that are 0 leave what is below them.
class Tile {
  constructor(size, drawing) {
    const canvas = new OffscreenCanvas(size, size), context = canvas.getContext("2d");
    drawing(context);
    this.size = size;
    this.pixels = new Uint32Array(context.getImageData(0, 0, size, size).data.buffer);
  }
}

// A colour with a texture over it.
function textureTile(colour, texture, ink, ratio) {
  const size = Math.max(8, Math.round(8 * ratio));
  return new Tile(size, (context) => {
    context.fillStyle = colour;
    context.fillRect(0, 0, size, size);
    context.scale(size / 8, size / 8);
    strokeTexture(context, texture, ink);
  });
}

class PixelLayer {
  constructor(width, height) {
    this.width = Math.max(1, width);
    this.height = Math.max(1, height);
    this.image = new ImageData(this.width, this.height);
    this.pixels = new Uint32Array(this.image.data.buffer);
  }

  clear(pixel) { this.pixels.fill(pixel); }

  // Whole device pixels; what is outside of the layer is left out.
  rect(x, y, width, height, pixel) {
    const begin = Math.max(0, x), end = Math.min(this.width, x + width), bottom = Math.min(this.height, y + height);
    if (begin >= end) return;
    for (let line = Math.max(0, y); line < bottom; line++) {
      const at = line * this.width;
      // A call costs more than a few pixels.
      if (end - begin > 24) this.pixels.fill(pixel, at + begin, at + end);
      else for (let i = at + begin; i < at + end; i++) this.pixels[i] = pixel;
    }
  }

  // The tile begins at the rectangle's own corner, so that a bar keeps its look while it moves.
  tiled(x, y, width, height, tile) {
    const begin = Math.max(0, x), end = Math.min(this.width, x + width), bottom = Math.min(this.height, y + height);
    const {size, pixels} = tile;
    for (let line = Math.max(0, y); line < bottom; line++) {
      const from = (line - y) % size * size, to = line * this.width;
      for (let column = begin, phase = (begin - x) % size; column < end; column++) {
        const pixel = pixels[from + phase];
        if (pixel !== 0) this.pixels[to + column] = pixel;
        if (++phase === size) phase = 0;
      }
    }
  }

  putOn(context, x, y) { context.putImageData(this.image, x, y); }
}
