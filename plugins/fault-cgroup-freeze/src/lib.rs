//! Freezes the control group of each victim: all its processes stand still at once.

blackstart_sdk::register!(fault: blackstart_fault_core::cgroup_freeze::Fault);
