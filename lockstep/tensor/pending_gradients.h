// PendingGradients: an optimiser whose parameters may have no .grad yet, because the ranks have not averaged
// their gradients.
//
//   if (auto* pending = dynamic_cast<PendingGradients*>(&optimizer)) pending->make_gradients();
//
// GradScaler calls it, because it looks at gradients between backward() and step().
#pragma once

namespace lockstep {

class PendingGradients {
 public:
  PendingGradients() = default;
  virtual ~PendingGradients() = default;
  PendingGradients(const PendingGradients&) = delete;
  PendingGradients& operator=(const PendingGradients&) = delete;

  // Makes the .grad of every parameter. Collective.
  virtual void make_gradients() = 0;
};

}  // namespace lockstep
