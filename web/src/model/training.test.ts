import { expect, test } from "vitest";
import type { BatchMember, BiasAccount, TrainingBatch } from "../api/training";
import {
  accountRows,
  batchNumbers,
  domainRows,
  endText,
  figuresOf,
  memberRows,
  profileRows,
  rewardText,
  settledBatches,
} from "./training";

const member = (program: string, reward: number | null, tokens: number): BatchMember => ({
  ...{ program, reward, tokens, end: "completed", version: 0, turns: 1, sample: null },
});
const batchOf = (batch: number, fields: Partial<TrainingBatch> = {}): TrainingBatch => ({
  ...{ batch, lineage: 0, trained: true, groups: [], ...fields },
});
const TWO_GROUPS = batchOf(3, {
  groups: [
    {
      ...{ group: "p1", version: 2, lag: 0 },
      members: [member("a", 1, 10), member("b", 0, 30)],
    },
    {
      ...{ group: "p2", version: 1, lag: 1 },
      members: [member("c", 0.5, 20), member("d", null, 40)],
    },
  ],
});

test("only batches that exist are asked for, ten at most", () => {
  const numbers = (next_batch: number, checkpoint: number) =>
    batchNumbers({ next_batch, checkpoint, lineage: 0 });
  expect(numbers(1, 0)).toEqual([]);
  expect(numbers(4, 0)).toEqual([3, 2, 1]);
  expect(numbers(4, 2)).toEqual([3]);
  expect(numbers(4, 3)).toEqual([]);
  expect(numbers(100, 7)).toEqual([99, 98, 97, 96, 95, 94, 93, 92, 91, 90]);
});

test("a batch is read again until it is trained, after a rollback, and of a new job", () => {
  const known = [batchOf(3, { trained: false }), batchOf(2), batchOf(1)];
  const kept = (next_batch: number, lineage: number) => [
    ...settledBatches(known, { next_batch, checkpoint: 0, lineage }).keys(),
  ];
  expect(kept(4, 0)).toEqual([2, 1]);
  expect(kept(4, 1)).toEqual([]);
  expect(kept(3, 0)).toEqual([]);
});

test("figures of a batch leave out members without a reward", () => {
  expect(figuresOf(TWO_GROUPS)).toEqual({
    ...{ members: 4, rewardMean: 0.5, rewardSpread: 0.5, tokensMean: 25, lagMax: 1, lagMean: 0.5 },
  });
  expect(figuresOf(batchOf(1))).toEqual({
    ...{
      members: 0,
      rewardMean: null,
      rewardSpread: null,
      tokensMean: null,
      lagMax: null,
      lagMean: null,
    },
  });
});

test("members are listed with the group and the lag", () => {
  const rows = memberRows(TWO_GROUPS).map((row) => [row.group, row.program, row.lag]);
  expect(rows).toEqual([
    ["p1", "a", 0],
    ["p1", "b", 0],
    ["p2", "c", 1],
    ["p2", "d", 1],
  ]);
});

test("the account has means over members, and losses by reason", () => {
  const tally = (members: number, tokens: number, turns: number, reward_mean: number | null) => ({
    ...{ members, tokens, turns, reward_mean, rewarded: reward_mean === null ? 0 : members },
  });
  const account: BiasAccount = {
    ...{ begun: 5, finished: tally(2, 30, 4, 0.5), served: tally(0, 0, 0, null) },
    lost: { environment_failed: tally(1, 7, 1, null) },
    domains: {
      math: { begun: 4, finished: tally(2, 30, 4, 0.5), served: tally(1, 9, 2, 1), lost: {} },
    },
    ...{ breaks: {}, returned: 0, never_served: 0, surplus: 0, lag: 1 },
  };
  account.domains.code = { ...account, lost: { ...account.lost, cut: tally(2, 0, 0, null) } };
  const rows = accountRows(account).map(Object.values);
  expect(rows).toEqual([
    ["Begun", 5, null, null, null],
    ["Finished", 2, 0.5, 15, 2],
    ["Served in a batch", 0, null, null, null],
    ["Lost: environment failed", 1, null, 7, 1],
  ]);
  const math = { tokens: { finished: 15, served: 9 }, reward: { finished: 0.5, served: 1 } };
  const code = { tokens: { finished: 15, served: null }, reward: { finished: 0.5, served: null } };
  expect(domainRows(account)).toEqual([
    { domain: "math", begun: 4, finished: 2, served: 1, lost: 0, ...math },
    { domain: "code", begun: 5, finished: 2, served: 0, lost: 3, ...code },
  ]);
});

test("domains are compared by class, with what is proposed instead", () => {
  const needs = (name: string | null, seconds: Record<string, number>) => ({
    ...{ class: name, members: 9, turns: 2.5, prefill_tokens: 300, output_tokens: 700, seconds },
  });
  const domains = {
    math: needs("h20", { h800: 2.5, h20: 4 }),
    code: needs("h800", { h800: 1 }),
    other: needs(null, {}),
  };
  const proposed = { math: "h800", code: "h800", gone: "h20" };
  const { rows, classes } = profileRows({ domains, proposed });
  expect(classes).toEqual(["h20", "h800"]);
  expect(rows.map((row) => [row.domain, row.proposed])).toEqual([
    ["math", "h800"],
    ["code", null],
    ["other", null],
  ]);
  expect(profileRows({ domains: {} })).toEqual({ rows: [], classes: [] });
});

test("rewards have at most four digits, and ends are words", () => {
  const texts = [null, 0.12345, 2 / 3, 0.00034, -0.5, 1, 999, 12345].map(rewardText);
  expect(texts).toEqual(["–", "0.1235", "0.6667", "0.00034", "-0.5", "1", "999", "12.3k"]);
  expect(endText("environment_failed")).toBe("environment failed");
  expect(endText("capture_failed")).toBe("capture failed");
});
