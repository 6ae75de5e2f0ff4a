// Prometheus' text format, as far as the daemon uses it.

export interface Sample {
  name: string;
  labels: Record<string, string>;
  value: number;
}

export class Metrics {
  private byName = new Map<string, Sample[]>();

  constructor(samples: Sample[]) {
    for (const sample of samples) {
      const list = this.byName.get(sample.name);
      if (list) list.push(sample);
      else this.byName.set(sample.name, [sample]);
    }
  }

  /** All samples of a metric. */
  all(name: string): Sample[] {
    return this.byName.get(name) ?? [];
  }

  /** The sum of a metric over its labels; null where the daemon has none. */
  sum(name: string): number | null {
    const samples = this.byName.get(name);
    return samples ? samples.reduce((sum, sample) => sum + sample.value, 0) : null;
  }

  /** The sample with this label. */
  of(name: string, label: string, value: string): number | null {
    return this.all(name).find((sample) => sample.labels[label] === value)?.value ?? null;
  }
}

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/;
const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;

/** Metrics by their series, as the daemon's samples have them. */
export function metricsOf(values: Record<string, number>): Metrics {
  const lines = Object.entries(values).map(([series, value]) => `${series} ${value}`);
  return parseMetrics(lines.join("\n"));
}

/** Reads a page of metrics. Lines that it can't read are left out. */
export function parseMetrics(text: string): Metrics {
  const samples: Sample[] = [];
  for (const line of text.split("\n")) {
    const match = LINE.exec(line);
    if (!match || line.startsWith("#")) continue;
    const [, name = "", labelText = "", valueText = ""] = match;
    const labels: Record<string, string> = {};
    for (const [, key = "", value = ""] of labelText.matchAll(LABEL)) {
      labels[key] = value.replace(/\\(.)/g, (_, c: string) => (c === "n" ? "\n" : c));
    }
    samples.push({ name, labels, value: Number(valueText) });
  }
  return new Metrics(samples);
}
