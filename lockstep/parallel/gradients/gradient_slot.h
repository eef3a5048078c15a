// One parameter's place in a bucket: moves its gradient into the bucket and makes .grad an alias of that
// place.
//
// The alias has the parameter's own strides and is detached: an autograd view would make libtorch's
// zero_grad() throw.
//
//   zero_grad()                autograd installs a fresh gradient; take_gradient() copies it into the bucket,
//                              still warm in cache, and re-installs the alias. A large gradient was made in
//                              the bucket to begin with if offer() was called before (tensor/lent_places.h)
//   zero_grad(false), no_sync  autograd adds to the alias in place; take_gradient() finds nothing to do
//
// A .grad that is not the slot's alone stays the tensor it is: one that the user made and keeps, as a view of
// a flat buffer of all gradients, or one that another wrapper averages, too. It is copied into the bucket,
// and settle() copies the average back.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <optional>
#include <string>

namespace lockstep {

// Part of a flat tensor as a gradient of that shape and these strides, from element `offset` on. Detached.
at::Tensor gradient_alias(const at::Tensor& flat, at::IntArrayRef sizes, at::IntArrayRef strides,
                          std::size_t offset);

class GradientSlot {
 public:
  // `flat` is the bucket; `offset` counts elements.
  GradientSlot(std::string name, at::Tensor parameter, const at::Tensor& flat, std::size_t offset);

  const std::string& name() const { return name_; }
  const at::Tensor& parameter() const { return parameter_; }
  const at::Tensor& alias() const { return alias_; }
  std::size_t offset() const { return offset_; }
  bool has_gradient() const { return parameter_.grad().defined(); }
  bool requires_grad() const { return parameter_.requires_grad(); }
  bool is_apart() const { return is_apart_; }
  bool is_installed() const;  // .grad is the alias

  // How the parameter is no longer the one that was wrapped, if so.
  std::optional<std::string> change() const;
  // Why the gradient cannot travel in this bucket (sparse, another dtype or shape, none), if so.
  std::optional<std::string> refusal() const;
  // Offers the place to the gradient that autograd is about to make, after `skip` other tensors of its size,
  // if there is none to add to. See withdraw_places().
  void offer(const void* who, std::size_t skip) const;
  void end_offer() const;
  // Something that is not this gradient alone was made in the place and lives: move_to() comes before the
  // next two.
  bool is_occupied() const;
  // To another place, of this one or another bucket, with what this one holds.
  void move_to(const at::Tensor& flat, std::size_t offset);
  // From now on .grad lies outside the bucket; or no longer.
  void keep_apart(bool on);
  // Makes the bucket hold .grad, and .grad the alias, unless it `stays`. Returns the bytes copied. Needs
  // has_gradient() and no refusal().
  std::size_t take_gradient(bool stays);

  // This rank has no new gradient: the bucket holds what .grad held before, else zeros, and .grad is left
  // alone until settle() says whether another rank had one. Only then does .grad become the average.
  void contribute_nothing_new(bool stays);
  void settle(bool used_by_any_rank);

 private:
  bool is_in_place() const;
  void give_average();
  bool fits(const at::Tensor& tensor) const;

  // constant after construction
  std::string name_;
  at::Tensor parameter_;

  std::size_t offset_;
  at::Tensor flat_;
  at::Tensor alias_;
  bool is_apart_ = false;
  bool stays_ = false;  // .grad, until settle()
  bool nothing_new_ = false;
  at::Tensor kept_;  // what the alias held when nothing new was contributed
};

}  // namespace lockstep
