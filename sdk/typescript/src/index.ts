/** Write treadle policies in TypeScript: one `define…` function per world. */

export { PolicyError } from "./errors";
export * as host from "./host";
export { bounded, choice, flag, whole } from "./config";
export type { Key, Keys, Values } from "./config";
export type { Definition, Extra, Phase, Self } from "./policy";
export { defineAllocation } from "./allocation";
export type { ActionColumns, AllocationPolicy, ParallelismColumns, PoolColumns, RunningColumns } from "./allocation";
export { Arrangement, FreeUnits, optionsOf, optionTimeUs } from "./arrangement";
export { defineEviction } from "./eviction";
export type { ActingColumns, ActiveColumns, CacheAction, EvictionPolicy, RetentionColumns, WaitingColumns } from "./eviction";
export { definePlacement, NO_CLASS, NO_GROUP, NOWHERE } from "./placement";
export type { AssignColumns, MigrateColumns, PlacementPolicy, RouteColumns, WorkerColumns } from "./placement";
export { definePrediction } from "./prediction";
export type { Estimates, FinishedColumns, LiveColumns, PredictionPolicy } from "./prediction";
export { definePriority } from "./priority";
export type { PreemptColumns, PriorityPolicy, QueueColumns } from "./priority";
export { defineReward } from "./reward";
export type { AnswerColumns, RewardPolicy, Scores } from "./reward";
export { COMPLETED, defineShaping, rowsOfGroups, RUNNING, TRUNCATED } from "./shaping";
export type { GroupColumns, MemberColumns, ShapingPolicy, Verdict } from "./shaping";
