// Files of a GPT-2, as Hugging Face writes and reads them.
//
//   models::GPT2 net = models::gpt2_from_pretrained("gpt2");  // a folder with config.json and the weights
//   models::load_gpt2(*net, "gpt2/model.safetensors");        // into a model that exists
//   if (dist::get_rank() == 0) models::save_gpt2(*net, "finetuned");
//
//   model = transformers.GPT2LMHeadModel.from_pretrained("finetuned")      # Python
//
// Folder      config.json and model.safetensors, or model.safetensors.index.json beside the files it names.
// Names       with the prefix "transformer." and without, as the first GPT-2 files have them; also behind
//             "module.", as Python's DistributedDataParallel writes. The buffers h.N.attn.bias and
//             h.N.attn.masked_bias of older files hold the causal mask and are passed over.
// Tied        a file holds transformer.wte.weight, lm_head.weight, or both with the same values. Saved is
//             what Hugging Face saves: .safetensors the first alone; .pt both, as one tensor.
// Fails       InvalidArgument: everything in the file that is missing, unexpected or of another shape, in one
//             error; two names of one tensor, or a tied weight and an lm_head.weight of other values. Before
//             any value is changed. Also what load_tensors() and save_state_dict() throw
//             (tensor/state_dict.h).
// Collective  none of these functions.
#pragma once

#include <string>

#include "lockstep/models/gpt2.h"

namespace lockstep::models {

// Copies the values of a file of any kind that load_tensors() reads, or of such a folder, into the model.
// Values are converted to the model's dtype.
void load_gpt2(GPT2Impl& net, const std::string& path);

// A model of the folder's config and weights, in float32.
GPT2 gpt2_from_pretrained(const std::string& folder);

// Writes a file that ends in .safetensors, .pt or .pth; any other path is a folder, which is made if it is
// missing, and gets config.json and model.safetensors.
void save_gpt2(const GPT2Impl& net, const std::string& path);

}  // namespace lockstep::models
