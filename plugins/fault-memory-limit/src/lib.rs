//! Caps the memory of each victim and takes what is left, so that the kernel ends it.

blackstart_sdk::register!(fault: blackstart_fault_core::memory_limit::Fault);
