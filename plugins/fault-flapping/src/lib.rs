//! Kills a process of each victim again and again.

blackstart_sdk::register!(fault: blackstart_fault_core::flapping::Flapping);
