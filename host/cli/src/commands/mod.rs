//! One module a command.

pub mod analyze;
pub mod demo;
pub mod logs;
pub mod plugin;
pub mod run;
pub mod verify;
