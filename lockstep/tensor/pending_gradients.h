// PendingGradients: an optimiser whose parameters have no .grad before somebody wants to see it, because the
// ranks have not averaged their gradients yet.
//
//   if (auto* pending = dynamic_cast<PendingGradients*>(&optimizer)) pending->make_gradients();
//
// Called by what looks at gradients between backward() and step(): GradScaler.
#pragma once

namespace lockstep {

class PendingGradients {
 public:
  PendingGradients() = default;
  virtual ~PendingGradients() = default;
  PendingGradients(const PendingGradients&) = delete;
  PendingGradients& operator=(const PendingGradients&) = delete;

  // Every parameter has its .grad afterwards. Collective.
  virtual void make_gradients() = 0;
};

}  // namespace lockstep
