"""What training minimizes: cross-entropy after each loop, and for a looped model how well its exit gate knows when to leave."""
import torch
import torch.nn.functional as F
from torch import nn

CLASS_WEIGHTS = [0.05, 1.0, 0.4, 0.0]  # prompt, answer, story, padding
ANSWER = 1
LOOP_WEIGHTS = {1: [1.0], 4: [0.1, 0.15, 0.25, 0.5]}
GATE_WEIGHT = 0.2
# A loop should go on where the last loop is better than it by more than the margin, in nats; the slope makes that soft.
GATE_MARGIN, GATE_SLOPE = 0.05, 50.0


class Loss(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.register_buffer("class_weights", torch.tensor(CLASS_WEIGHTS))

    def forward(self, tokens, classes, mask):
        """The loss, and for the log: of each loop the weighted mean, of each loop the mean over answers, the gate's loss."""
        target, target_class = tokens[:, 1:].reshape(-1), classes[:, 1:].reshape(-1)
        weight, is_answer = self.class_weights[target_class], (target_class == ANSWER).float()
        states = [h[:, :-1] for h in self.model(tokens, mask)]  # the last token predicts nothing
        each = [self.cross_entropy(h, target) for h in states]
        weighted = [mean(x, weight) for x in each]
        on_answers = [(x * is_answer).sum() / is_answer.sum().clamp(min=1) for x in each]
        total = sum(a * x for a, x in zip(LOOP_WEIGHTS[len(each)], weighted))
        logged = weighted + on_answers
        if len(states) > 1:
            gate = self.gate_loss(states, each, weight)
            total = total + GATE_WEIGHT * gate
            logged.append(gate)
        return total, torch.stack([x.detach() for x in logged])

    def cross_entropy(self, h, target):
        """One number a token."""
        logits = self.model.logits(h)
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), target, reduction="none")

    def gate_loss(self, states, each, weight):
        """Summed over all loops but the last. The states are detached: the gate learns, the model does not bend to it."""
        total = 0.0
        for h, loss in zip(states[:-1], each[:-1]):
            go_on = torch.sigmoid(GATE_SLOPE * (loss - each[-1] - GATE_MARGIN)).detach()
            gate = self.model.exit_gate(h.detach()).reshape(-1)
            total = total + mean(F.binary_cross_entropy_with_logits(gate, 1 - go_on, reduction="none"), weight)
        return total


def mean(x, weight):
    return (x * weight).sum() / weight.sum()
