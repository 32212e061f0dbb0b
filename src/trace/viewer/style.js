"use strict";

// What ops, links and idle reasons look like. Colour never stands alone: an op also has a texture and its name, a kind of link a
// letter and a texture.

const kTextures = ["none", "rising", "dots", "falling", "level", "upright", "cross"];
const kOpColours = {
  light: ["#86b1e6", "#f0aa62", "#86c98a", "#dd97c6", "#e3cf5c", "#74cbd4", "#bda4e6", "#cfab88", "#ea9288", "#aebcc8"],
  dark: ["#5c8fd6", "#d48c45", "#5da867", "#c273a8", "#bfa93a", "#45a6b3", "#9b80d1", "#ab8761", "#cc6b62", "#7f909e"],
};
const kLinkStyles = {
  compute: {letter: "C", texture: "none", light: "#6f9edb", dark: "#5c8fd6", says: "working"},
  weights: {letter: "S", texture: "level", light: "#7cc181", dark: "#5da867", says: "streaming weights"},
  wait: {letter: "W", texture: "rising", light: "#eba04f", dark: "#d48c45", says: "waiting for an event"},
  queue: {letter: "Q", texture: "dots", light: "#d78bbe", dark: "#c273a8", says: "behind another task in its lane"},
  launch: {letter: "L", texture: "cross", light: "#b3bfca", dark: "#7f909e", says: "launch"},
};
const kOtherLink = {letter: "?", texture: "falling", light: "#cbb68f", dark: "#8f8466", says: "of a kind that this page does not know"};

function linkStyle(kind) { return Object.hasOwn(kLinkStyles, kind) ? kLinkStyles[kind] : kOtherLink; }

// An op's name without its layer: L7.B0 is B0.
function nameInLayer(name) { return name.replace(/^L\d+\./, ""); }

// Ops of the same name look the same in every trace and every layer.
class OpStyles {
  constructor(traces) {
    this.index = new Map();
    for (const trace of traces) {
      for (const op of trace.ops) {
        const name = nameInLayer(op.name);
        if (!this.index.has(name)) this.index.set(name, this.index.size);
      }
    }
  }
  of(op, theme) {
    const i = this.index.get(nameInLayer(op.name));
    return {colour: kOpColours[theme][i % kOpColours.light.length], texture: kTextures[(i + Math.floor(i / kOpColours.light.length)) % kTextures.length]};
  }
}

// The strokes of a texture inside a square of 8 x 8, as an SVG path.
const kTexturePaths = {
  none: "",
  rising: "M-2,2 L2,-2 M0,8 L8,0 M6,10 L10,6",
  falling: "M-2,6 L2,10 M0,0 L8,8 M6,-2 L10,2",
  level: "M0,4 L8,4",
  upright: "M4,0 L4,8",
  cross: "M0,0 L8,8 M0,8 L8,0",
  dots: "M3.2,4 L4.8,4",
};
const kTextureInk = {light: "rgba(20,28,38,0.30)", dark: "rgba(5,8,12,0.42)"};

// Into a square of 8 x 8.
function strokeTexture(context, texture, ink) {
  context.strokeStyle = ink;
  context.lineWidth = texture === "dots" ? 2 : 1.2;
  context.lineCap = texture === "dots" ? "round" : "butt";
  context.stroke(new Path2D(kTexturePaths[texture]));
}

// How everything looks in one theme at one number of device pixels for a pixel of the page; made when first asked for.
class Paints {
  constructor(theme, ratio, colours, styles) {
    Object.assign(this, {theme, ratio, styles});
    this.pixels = {};
    for (const name of ["back", "band", "grid", "wait", "muted", "mark", "dim"]) this.pixels[name] = packColour(colours[name]);
    const period = Math.max(6, Math.round(6 * ratio));
    // Waiting: a broken line, where there is room for it.
    this.wait = new Tile(period, (context) => {
      context.fillStyle = colours.wait;
      context.fillRect(0, 0, Math.round(period * 2 / 3), period);
    });
    this.patterns = new Map();
  }

  // For each op of a trace {pixel, tile}: the tile is null where the op has no texture.
  ops(trace) {
    return trace.ops.map((op) => {
      const {colour, texture} = this.styles.of(op, this.theme);
      return {pixel: packColour(colour), tile: texture === "none" ? null : textureTile(colour, texture, kTextureInk[this.theme], this.ratio)};
    });
  }

  // A canvas pattern of the texture alone, or null.
  pattern(context, texture) {
    if (texture === "none") return null;
    if (!this.patterns.has(texture)) {
      const size = Math.max(8, Math.round(8 * this.ratio)), tile = new OffscreenCanvas(size, size), strokes = tile.getContext("2d");
      strokes.scale(size / 8, size / 8);
      strokeTexture(strokes, texture, kTextureInk[this.theme]);
      const pattern = context.createPattern(tile, "repeat");
      // In pixels of the page: the canvas is scaled.
      pattern.setTransform(new DOMMatrix().scale(8 / size));
      this.patterns.set(texture, pattern);
    }
    return this.patterns.get(texture);
  }
}

// A small picture of a colour with its texture, as the background of an element.
function swatchBackground(colour, texture, theme) {
  const path = kTexturePaths[texture];
  if (!path) return colour;
  const width = texture === "dots" ? 2 : 1.2;
  const cap = texture === "dots" ? " stroke-linecap='round'" : "";
  const svg = `<svg xmlns='http://www.w3.org/2000/svg' width='8' height='8'><path d='${path}' stroke='${kTextureInk[theme]}' stroke-width='${width}'${cap}/></svg>`;
  return `url("data:image/svg+xml,${encodeURIComponent(svg)}") ${colour}`;
}
