//! One module a command.

pub mod analyze;
pub mod compare;
pub mod demo;
pub mod load;
pub mod logs;
pub mod merge;
pub mod plugin;
pub mod run;
pub mod simulate;
pub mod undo;
pub mod verify;
