// Submissions of operations by name, for tests: vectors of float that live as long as the operation.
//
//   NamedSum x(engine, "a", {1, 2, 3});             // all_reduce of a vector, started
//   EXPECT_THAT(x.wait(), ElementsAre(2, 4, 6));
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/named/engine.h"

namespace lockstep::harness {

inline named::Request named_request(named::Kind kind, const std::string& name,
                                    std::vector<std::int64_t> shape, DType dtype = DType::FLOAT32) {
  named::Request request{.kind = kind, .name = name, .dtype = dtype};
  request.shape = std::move(shape);
  return request;
}

class NamedSum {
 public:
  NamedSum(named::Engine& engine, const std::string& name, std::vector<float> values,
           named::Op op = named::Op::SUM)
      : values_(std::make_shared<std::vector<float>>(std::move(values))),
        operation_(engine.submit(submission(name, op))) {}

  const std::vector<float>& wait() {
    operation_->wait();
    return *values_;
  }
  bool poll() const { return operation_->poll(); }

 private:
  named::Submission submission(const std::string& name, named::Op op) const {
    named::Submission made{.input = values_->data(), .output = values_->data(), .keep_alive = values_};
    made.request = named_request(named::Kind::ALLREDUCE, name, {static_cast<std::int64_t>(values_->size())});
    made.request.op = op;
    return made;
  }

  std::shared_ptr<std::vector<float>> values_;
  std::shared_ptr<named::Operation> operation_;
};

}  // namespace lockstep::harness
