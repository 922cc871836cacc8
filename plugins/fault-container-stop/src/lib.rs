//! Has the container engine stop the container of each victim in good order.

blackstart_sdk::register!(fault: blackstart_fault_core::container_stop::Fault);
