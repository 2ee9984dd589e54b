//! The memory optimizer, which so far is this face and nothing else.
//!
//! It will trace a [`Task`](plimsoll_tape::Task) under a batch shape and a choice on Burn's recording device, without a
//! GPU and without tensor memory; turn the trace into a timeline with an owner for every byte; model the allocator and
//! the card; and plan, for each length bucket, the largest piece that fits and computes fastest.
