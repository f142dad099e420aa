//! The blocking face: the same promises on threads, and its own: it never blocks an async worker, and dropping never
//! waits. What the locks promise everywhere is the engine's suite.

mod changes;
mod election;
mod locks;
mod loss;
mod stage;
mod workers;
