// The tensors of finished operations, until a thread without locks drops them (TakeOver in
// tensor/tensor_call.h).
//
//   take_over_ended_tensors();   // once
//   drop_ended_tensors();        // in each call of the backend, before and after the core's part
#pragma once

namespace lockstep::compat::torch_backend {

void take_over_ended_tensors();
void drop_ended_tensors();

}  // namespace lockstep::compat::torch_backend
