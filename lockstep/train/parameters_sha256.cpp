#include "lockstep/train/parameters_sha256.h"

#include <openssl/evp.h>

#include <array>
#include <memory>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/collectives.h"

namespace lockstep {
namespace {

constexpr std::size_t DIGEST_BYTES = 32;
constexpr std::size_t DIGEST_TEXT = 2 * DIGEST_BYTES;

class Sha256 {
 public:
  Sha256() {
    if (!context_ || EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) != 1)
      throw InternalError("SHA-256 failed");
  }
  void add(const void* data, std::size_t bytes) {
    if (EVP_DigestUpdate(context_.get(), data, bytes) != 1) throw InternalError("SHA-256 failed");
  }
  // Length first, so that no two lists of texts give the same bytes.
  void add(const std::string& text) {
    const std::uint64_t size = text.size();
    add(&size, sizeof(size));
    add(text.data(), text.size());
  }
  std::string hex() {
    std::array<unsigned char, DIGEST_BYTES> digest = {};
    if (EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr) != 1)
      throw InternalError("SHA-256 failed");
    std::string text;
    for (const unsigned char byte : digest) {
      text += "0123456789abcdef"[byte >> 4U];
      text += "0123456789abcdef"[byte & 0xfU];
    }
    return text;
  }

 private:
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context_{EVP_MD_CTX_new()};
};

}  // namespace

std::string parameters_sha256(const std::vector<std::pair<std::string, at::Tensor>>& parameters) {
  Sha256 sha256;
  for (const auto& [name, tensor] : parameters) {
    const at::Tensor plain = tensor.detach().cpu().contiguous();
    sha256.add(name);
    sha256.add(std::string(c10::toString(plain.scalar_type())));
    sha256.add(plain.sizes().data(), plain.sizes().size() * sizeof(std::int64_t));
    sha256.add(plain.data_ptr(), plain.nbytes());
  }
  return sha256.hex();
}

bool all_ranks_hold(const std::string& sha256, const ProcessGroup& group) {
  if (sha256.size() != DIGEST_TEXT) {
    throw InvalidArgument(
        lockstep::str("all_ranks_hold: a SHA-256 has ", DIGEST_TEXT, " digits, this has ", sha256.size()));
  }
  group.require_member("all_ranks_hold");
  const Acting acting(Purpose::CHECKSUM);
  const auto ranks = static_cast<std::size_t>(group.size());
  std::vector<std::uint8_t> everyone(DIGEST_TEXT * ranks);
  const auto* mine = reinterpret_cast<const std::uint8_t*>(sha256.data());
  comm::all_gather(group, std::span(mine, DIGEST_TEXT), std::span(everyone));
  bool equal = true;
  for (std::size_t i = 0; i < everyone.size(); ++i) equal = equal && everyone[i] == mine[i % DIGEST_TEXT];
  return equal;
}

}  // namespace lockstep
