"use strict";

// Numbers and times as text.

const kNoValue = "–";

// Three significant digits or more, with the unit that fits `scale` (by default the value itself).
function formatNs(ns, scale = Math.abs(ns)) {
  if (!Number.isFinite(ns)) return kNoValue;
  const [unit, divisor] = scale >= 1e9 ? ["s", 1e9] : scale >= 1e6 ? ["ms", 1e6] : scale >= 1e3 ? ["µs", 1e3] : ["ns", 1];
  const value = ns / divisor;
  const digits = divisor === 1 ? (Number.isInteger(ns) ? 0 : 1) : Math.abs(value) >= 100 ? 1 : Math.abs(value) >= 10 ? 2 : 3;
  return `${value.toFixed(digits)} ${unit}`;
}

function formatDifference(ns) {
  if (!Number.isFinite(ns)) return kNoValue;
  if (ns === 0) return "0";
  return `${ns > 0 ? "+" : "−"}${formatNs(Math.abs(ns))}`;
}

function formatCount(count) { return count.toLocaleString("en-GB"); }

function formatShare(part, whole) { return whole > 0 ? `${(100 * part / whole).toFixed(1)} %` : kNoValue; }

function plural(count, noun) { return `${formatCount(count)} ${noun}${count === 1 ? "" : "s"}`; }

// Where the axis has its marks: a step of 1, 2 or 5 times a power of ten, at least minPx wide.
function axisStep(nsPerPx, minPx) {
  const least = nsPerPx * minPx;
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least * 0.999);
}

function axisLabel(ns, step) {
  const [unit, divisor] = step >= 1e9 ? ["s", 1e9] : step >= 1e5 ? ["ms", 1e6] : step >= 100 ? ["µs", 1e3] : ["ns", 1];
  const digits = Math.max(0, Math.ceil(-Math.log10(step / divisor) - 1e-9));
  return `${(ns / divisor).toFixed(digits)} ${unit}`;
}
