/** Slices of your own with a type. */

import type { Position } from "./files.js";
import type { Session } from "./session.js";

/** Anything that checks a value and returns it with its type, such as a schema of zod. */
export interface Schema<T> {
  /** Returns the value, or throws if it is invalid. */
  parse(value: unknown): T;
}

/** A fold of events of one kind; docs/slices.md explains the folds. */
export interface SliceOptions {
  /** The fold: a list of all items, the latest item, or the latest item of each key. */
  fold: "append" | "latest" | "latest_by";
  /** The key of an item, a JSON pointer such as `/id`; for `latest_by`. */
  key?: string;
  /** The number of items that are kept; for `append`. */
  max?: number;
  /** The kind of its events, `own.NAME` by default. */
  kind?: string;
  /** The treatment in merges, `ours` by default. */
  merge?: "ours" | "theirs" | "union" | "refuse";
}

/** The value of a slice: items in order, items by their keys, or the latest item. */
export type SliceValue<T, O extends SliceOptions> = O["fold"] extends "append"
  ? T[]
  : O["fold"] extends "latest_by"
    ? Record<string, T>
    : T | null;

/** A declared slice whose events and values have a type; `Session.slice` makes it. */
export class TypedSlice<T, O extends SliceOptions> {
  #declared?: Promise<unknown>;

  /** @internal */
  constructor(
    private readonly session: Session,
    /** The name of the slice. */
    readonly name: string,
    private readonly schema: Schema<T>,
    private readonly options: O,
  ) {}

  get #kind(): string {
    return this.options.kind ?? `own.${this.name}`;
  }

  /** Declares the slice, unless that is done. */
  async declare(): Promise<void> {
    const { fold, key, max, merge = "ours" } = this.options;
    this.#declared ??= this.session.declare(this.name, { rules: [{ kinds: [this.#kind], fold, key, max }], merge });
    try {
      await this.#declared;
    } catch (error) {
      this.#declared = undefined;
      throw error;
    }
  }

  /** Checks and records an item, and returns the position of its event. */
  async emit(item: T): Promise<number> {
    const checked = this.schema.parse(item);
    await this.declare();
    return this.session.emit(this.#kind, checked);
  }

  /** Returns its value, now or at a position. */
  async get(at?: Position): Promise<SliceValue<T, O>> {
    await this.declare();
    const { value } = await (at === undefined ? this.session : this.session.at(at)).state(this.name);
    const item = (each: unknown) => this.schema.parse(each);
    const typed = {
      append: () => value.map(item),
      latest: () => (value === null ? null : item(value)),
      latest_by: () => Object.fromEntries(Object.entries(value).map(([key, each]) => [key, item(each)])),
    };
    return typed[this.options.fold]() as SliceValue<T, O>;
  }
}
