"""Training loops of different lengths: Join. The largest rank trains longest, and each smaller one ends 15 steps earlier."""
import torch
import torch.distributed as dist

from cases_ddp import buffers
from equivalence import Case, OneProcess  # noqa: F401: cases are found by their base


class join(buffers):
    """Averages over all ranks, those without inputs counting as zero; batch normalisation, whose buffers come from the largest
    rank that has inputs. The losses are those of the largest rank."""
    by_initial = True

    def steps_of(self, rank, ranks):
        return self.steps - 15 * (ranks - 1 - rank)

    def train(self, place):
        models = self.models()
        place.load(models)
        model = place.wrap(models["model"], **self.ddp)
        optimizer = self.optimizer(models)
        train = self.alone if isinstance(place, OneProcess) else self.with_others
        losses = train(place, models, model, optimizer)
        place.record_state(models)
        place.record["loss"] = torch.tensor(losses, dtype=torch.float64)

    def with_others(self, place, models, model, optimizer):
        losses = torch.zeros(self.steps, dtype=torch.float64)
        rank = dist.get_rank()
        with model.join(divide_by_initial_world_size=self.by_initial):
            for place.step in range(self.steps_of(rank, place.ranks)):
                optimizer.zero_grad()
                loss = self.loss(model, place.share(rank))
                loss.backward()
                if place.step == 0:
                    place.record_gradients(models)
                optimizer.step()
                losses[place.step] = loss.item()
        dist.broadcast(losses, place.ranks - 1)
        return losses.tolist()

    def alone(self, place, models, model, optimizer):
        losses = []
        for place.step in range(self.steps):
            optimizer.zero_grad()
            active = [rank for rank in range(place.ranks) if place.step < self.steps_of(rank, place.ranks)]
            before = {name: b.clone() for name, b in model.named_buffers()}
            for rank in active:  # the largest last: the next step begins with its buffers
                place.set_buffers(model, before)
                loss = self.loss(model, place.share(rank))
                (loss / (place.ranks if self.by_initial else len(active))).backward()
            if place.step == 0:
                place.record_gradients(models)
            optimizer.step()
            losses.append(loss.item())
        return losses


class join_over_active(join):
    """Averages over the ranks that have inputs."""
    by_initial = False
