// GradientSlot: one parameter's place in a bucket. It moves the gradient into the bucket and makes .grad an
// alias of that place.
//
// The alias has the parameter's own strides. It is detached, because libtorch's zero_grad() throws on an
// autograd view.
//
//   zero_grad()                autograd installs a new gradient. take_gradient() copies it into the bucket
//                              while it is in the cache, and installs the alias again. After an offer(), a
//                              large gradient is made in the bucket itself (tensor/lent_places.h)
//   zero_grad(false), no_sync  autograd adds to the alias in place, so take_gradient() has nothing to do
//
// A .grad with another holder stays the tensor it is. The program may have made it and keep it, such as a
// view of a flat buffer of all gradients, or another wrapper averages it, too. It is copied into the bucket,
// and settle() copies the average back.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <optional>
#include <string>

namespace lockstep {

// Returns a part of a flat tensor as a gradient of that shape and strides, from element `offset` on.
// Detached.
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

  // Returns how the parameter differs from the one that was wrapped, if it does.
  std::optional<std::string> change() const;
  // Returns why the gradient cannot travel in this bucket (sparse, another dtype or shape, none), if it
  // cannot.
  std::optional<std::string> refusal() const;
  // Offers the place to the gradient that autograd is about to make, after `skip` other tensors of its size.
  // Does nothing if there is a .grad to add to. See withdraw_places().
  void offer(const void* who, std::size_t skip) const;
  void end_offer() const;
  // Returns whether another tensor than this gradient lives in the place. If so, call move_to() before the
  // next two.
  bool is_occupied() const;
  // Moves to another place, of this bucket or another, together with the values.
  void move_to(const at::Tensor& flat, std::size_t offset);
  // Says whether .grad lies outside of the bucket from now on.
  void keep_apart(bool on);
  // Makes the bucket hold .grad, and .grad the alias, unless it `stays`. Returns the bytes copied. There must
  // be a gradient and no refusal().
  std::size_t take_gradient(bool stays);

  // This rank has no new gradient. The bucket then holds the values that .grad had before, or zeros. .grad is
  // left alone until settle() says whether another rank had a gradient. Only then does .grad become the
  // average.
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
  bool stays_ = false;  // .grad stays the tensor it is until settle()
  bool nothing_new_ = false;
  at::Tensor kept_;  // values of the alias, if nothing new was contributed
};

}  // namespace lockstep
