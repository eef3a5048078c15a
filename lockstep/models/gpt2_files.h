// Files of a GPT-2, as Hugging Face writes and reads them.
//
//   models::GPT2 net = models::gpt2_from_pretrained("gpt2");  // a folder with config.json and the weights
//   models::load_gpt2(*net, "gpt2/model.safetensors");        // into a model that exists
//   if (dist::get_rank() == 0) models::save_gpt2(*net, "finetuned");
//
//   model = transformers.GPT2LMHeadModel.from_pretrained("finetuned")      # Python
//
// Folder      config.json and model.safetensors, or model.safetensors.index.json beside the files it names.
// Names       with or without the prefix "transformer.", which the first GPT-2 files lack. Also behind
//             "module.", as Python's DistributedDataParallel writes. The buffers h.N.attn.bias and
//             h.N.attn.masked_bias of older files hold the causal mask and are ignored.
// Tied        A file holds transformer.wte.weight, lm_head.weight, or both with the same values. The files
//             written are those of Hugging Face: .safetensors has the first alone; .pt has both, as one
//             tensor.
// Fails       InvalidArgument before any value is changed. One error lists all tensors of the file that are
//             missing, unexpected or of another shape. Other errors: a tensor under two names, or a tied
//             weight and an lm_head.weight of different values. Also the errors of load_tensors() and
//             save_state_dict() (tensor/state_dict.h).
// Collective  None of these functions is.
#pragma once

#include <string>

#include "lockstep/models/gpt2.h"

namespace lockstep::models {

// Copies the values of a file that load_tensors() reads, or of such a folder, into the model. Converts values
// to the model's dtype.
void load_gpt2(GPT2Impl& net, const std::string& path);

// Returns a model with the folder's config and weights, in float32.
GPT2 gpt2_from_pretrained(const std::string& folder);

// Writes a file if the path ends in .safetensors, .pt or .pth. Any other path is a folder, which is made if
// it is missing and gets config.json and model.safetensors.
void save_gpt2(const GPT2Impl& net, const std::string& path);

}  // namespace lockstep::models
