// Plots over time, by uPlot. Each has a sentence for who cannot see it.
import uPlot from "uplot";
import { useEffect, useRef } from "preact/hooks";
import { date } from "./format.js";

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** Times of an axis, as exact as the stretch is short. */
function timeLabels(plot, splits) {
  const span = plot.scales.x.max - plot.scales.x.min;
  return splits.map((second) => {
    const text = date(second * 1000);
    return span < 900 ? text.slice(11) : span < 2 * 86400 ? text.slice(11, 16) : text.slice(5, 10);
  });
}

const POWERS_OF_TWO = Array.from({ length: 53 }, (_, power) => 2 ** power);
const WHOLE = Array.from({ length: 13 }, (_, power) => [1, 2, 5].map((digit) => digit * 10 ** power)).flat();

/** The last place at which anything is known. */
function lastKnown(plot) {
  for (let at = plot.data[0].length - 1; at >= 0; at--) {
    if (plot.data.some((values, series) => series > 0 && values[at] !== null && values[at] !== undefined)) return at;
  }
  return null;
}

/** Marks events on the time line. */
function marks(events) {
  return {
    hooks: {
      draw: [
        (plot) => {
          const { ctx } = plot;
          ctx.save();
          for (const event of events.current) {
            const x = plot.valToPos(event.at / 1000, "x", true);
            if (x < plot.bbox.left || x > plot.bbox.left + plot.bbox.width) continue;
            ctx.strokeStyle = color(event.kind === "slow-command" ? "--bad" : "--mark");
            ctx.globalAlpha = 0.7;
            ctx.setLineDash([4, 4]);
            ctx.beginPath();
            ctx.moveTo(x, plot.bbox.top);
            ctx.lineTo(x, plot.bbox.top + plot.bbox.height);
            ctx.stroke();
          }
          ctx.restore();
        },
      ],
    },
  };
}

/**
 * `series`: { name, color, values, fill }; `times` in seconds, `from` and `to` the stretch that is asked for, of which
 * `times` may have a part. `unit` is "bytes" or "whole" for ticks at powers of two or whole numbers. `onSelect(from, to)` is called when a stretch was brushed,
 * `onPick(time)` when a moment was clicked.
 */
export function Chart({ title, times, from, to, series, format, unit, most, events = [], log = false, height = 190, onSelect, onPick }) {
  const box = useRef(null);
  const plot = useRef(null);
  const marked = useRef(events);
  const call = useRef({});
  marked.current = events;
  call.current = { onSelect, onPick, format, from, to };

  useEffect(() => {
    const axis = {
      stroke: () => color("--quiet"),
      grid: { stroke: () => color("--grid"), width: 1 },
      ticks: { show: false },
      font: "11px system-ui, sans-serif",
    };
    const options = {
      width: box.current.clientWidth || 300,
      height,
      padding: [8, 22, 0, 0],
      tzDate: (second) => uPlot.tzDate(new Date(second * 1000), "Etc/UTC"),
      cursor: { drag: { x: true, y: false, setScale: false }, sync: { key: "console" }, points: { size: 6 } },
      legend: { live: true },
      scales: {
        x: { time: true, range: () => [call.current.from, call.current.to] },
        y: log
          ? { distr: 3, range: (_, low, high) => [Math.max(0.1, low || 0.1), Math.max(10, (high || 1) * 1.5)] }
          : { range: (_, low, high) => [0, most ?? (high || 1) * 1.1] },
      },
      axes: [
        { ...axis, size: 30, space: 76, values: timeLabels },
        { ...axis, size: 62, ...(unit ? { incrs: unit === "bytes" ? POWERS_OF_TWO : WHOLE } : {}), values: (_, values) => values.map((value) => (value === null ? "" : call.current.format(value))) },
      ],
      series: [
        { value: (_, value) => (value === null ? "" : date(value * 1000)) },
        ...series.map((one) => ({
          label: one.name,
          stroke: () => color(one.color),
          fill: one.fill ? () => color(one.color) + "22" : undefined,
          width: 1.5,
          points: { show: false },
          value: (_, value) => (value === null || value === undefined ? "–" : call.current.format(value)),
        })),
      ],
      plugins: [marks(marked)],
      hooks: {
        // Where no pointer is, the legend has the last values.
        setCursor: [(self) => self.cursor.left < 0 && self.setLegend({ idx: lastKnown(self) })],
        setSelect: [
          (self) => {
            if (self.select.width < 8) return;
            const from = self.posToVal(self.select.left, "x");
            const to = self.posToVal(self.select.left + self.select.width, "x");
            self.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
            call.current.onSelect?.(Math.floor(from), Math.ceil(to));
          },
        ],
      },
    };
    const made = new uPlot(options, [[], ...series.map(() => [])], box.current);
    plot.current = made;
    const click = () => {
      const { left } = made.cursor;
      if (left >= 0) call.current.onPick?.(Math.round(made.posToVal(left, "x")));
    };
    made.over.addEventListener("click", click);
    const sized = new ResizeObserver(() => {
      const width = box.current?.clientWidth;
      if (width) made.setSize({ width, height });
    });
    sized.observe(box.current);
    const theme = matchMedia("(prefers-color-scheme: dark)");
    const draw = () => made.redraw();
    theme.addEventListener("change", draw);
    addEventListener("theme", draw);
    return () => {
      sized.disconnect();
      theme.removeEventListener("change", draw);
      removeEventListener("theme", draw);
      made.destroy();
    };
  }, []);

  useEffect(() => {
    const made = plot.current;
    made.setData([times, ...series.map((one) => (log ? one.values.map((value) => value || null) : one.values))]);
    if (!(made.cursor.left >= 0)) made.setLegend({ idx: lastKnown(made) });
  }, [times, series, events, from, to]);

  const sentence = series
    .map((one) => {
      const known = one.values.filter((value) => value !== null);
      if (known.length === 0) return `${one.name}: no figures`;
      return `${one.name}: now ${format(known.at(-1))}, at most ${format(Math.max(...known))}`;
    })
    .join("; ");
  return (
    <figure class={`chart ${times.length ? "" : "none"}`}>
      <figcaption>{title}</figcaption>
      <div ref={box} class="plot" role="img" aria-label={`${title}, ${date(from * 1000)} to ${date(to * 1000)}. ${sentence}`} />
      {times.length === 0 && <p class="empty">Nothing was recorded in this time.</p>}
    </figure>
  );
}
