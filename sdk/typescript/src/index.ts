/** Write treadle policies in TypeScript: one `define…` function per world. */

export { PolicyError } from "./errors";
export * as host from "./host";
export type { Definition, Extra, Self } from "./policy";
export { defineAllocation } from "./allocation";
export type { AllocationPolicy, GrantColumns, ParallelismColumns, RedundancyColumns } from "./allocation";
export { defineEviction } from "./eviction";
export type { ActingColumns, ActiveColumns, EvictionPolicy, ServiceColumns, WaitingColumns } from "./eviction";
export { definePlacement, NOWHERE } from "./placement";
export type { AssignColumns, MigrateColumns, PlacementPolicy, RouteColumns, WorkerColumns } from "./placement";
export { definePrediction } from "./prediction";
export type { Estimates, FinishedColumns, LiveColumns, PredictionPolicy } from "./prediction";
export { definePriority } from "./priority";
export type { PreemptColumns, PriorityPolicy, QueueColumns } from "./priority";
export { defineRetention, Fate } from "./retention";
export type { RetentionColumns, RetentionPolicy } from "./retention";
export { defineReward } from "./reward";
export type { AnswerColumns, CandidateColumns, RewardPolicy, Scores } from "./reward";
