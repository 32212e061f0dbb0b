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

// Ops of the same name look the same in every trace.
class OpStyles {
  constructor(traces) {
    this.index = new Map();
    for (const trace of traces) for (const op of trace.ops) if (!this.index.has(op.name)) this.index.set(op.name, this.index.size);
  }
  of(op, theme) {
    const i = this.index.get(op.name);
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

// Canvas patterns by texture, made when first asked for.
class TexturePatterns {
  constructor(ink, scale) {
    this.ink = ink;
    this.scale = scale;
    this.patterns = new Map();
  }
  get(context, texture) {
    if (texture === "none") return null;
    if (!this.patterns.has(texture)) {
      const size = Math.round(8 * this.scale);
      const tile = new OffscreenCanvas(size, size);
      const ink = tile.getContext("2d");
      ink.scale(size / 8, size / 8);
      ink.strokeStyle = this.ink;
      ink.lineWidth = texture === "dots" ? 2 : 1.2;
      ink.lineCap = texture === "dots" ? "round" : "butt";
      ink.stroke(new Path2D(kTexturePaths[texture]));
      const pattern = context.createPattern(tile, "repeat");
      // The page's unit, not the device's: the canvas is scaled.
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
