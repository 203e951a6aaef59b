"""The models in PyTorch."""
import torch

from _measure import BATCH, CLASSES, PIXELS, measure, task


class Recurrent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = torch.nn.LSTM(28, 128, batch_first=True)
        self.output = torch.nn.Linear(128, CLASSES)

    def forward(self, images):
        outputs, _ = self.lstm(images.view(BATCH, 28, 28))
        return self.output(outputs[:, -1])


def mlp():
    return torch.nn.Sequential(torch.nn.Linear(PIXELS, 100), torch.nn.ReLU(), torch.nn.Linear(100, CLASSES))


def cnn():
    return torch.nn.Sequential(
        torch.nn.Unflatten(1, (1, 28, 28)),
        torch.nn.Conv2d(1, 32, 5, padding=2), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(32, 64, 5, padding=2), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Flatten(), torch.nn.Linear(7 * 7 * 64, 512), torch.nn.ReLU(), torch.nn.Linear(512, CLASSES))


MODELS = {
    "mlp": (mlp, lambda parameters: torch.optim.Adam(parameters, 0.001)),
    "cnn": (cnn, lambda parameters: torch.optim.SGD(parameters, 0.01)),
    "lstm": (Recurrent, lambda parameters: torch.optim.SGD(parameters, 0.1)),
}


def main():
    name, images, labels = task()
    network, optimizer = MODELS[name]
    network = network()
    optimizer = optimizer(network.parameters())
    images, labels = torch.from_numpy(images.copy()), torch.from_numpy(labels)

    def step():
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(images), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    measure(step)


if __name__ == "__main__":
    main()
